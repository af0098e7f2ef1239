//! What a caller asks for, and what follows from it for the model of the transport.

use super::marks::Mark;
use super::model::{Addition, Life, Model, Outcome, Peer, Request, Xfer, ensure, nothing_more};
use super::world::{Fact, Verdict, World};
use crate::backend::{MAX_MESSAGE, Stop};
use crate::error::Status;
use crate::transport::{CancelMode, Completion, XferId};

impl Model {
    /// With which statuses a submission must be refused; none: it must not.
    pub(super) fn refusals(&self, request: &Request) -> Vec<Status> {
        if let Some(status) = self.refuses_all() {
            return vec![status];
        }
        let mut reasons = Vec::new();
        let too_long = |message: &Vec<u8>| message.len() > MAX_MESSAGE;
        if request.message.as_ref().is_some_and(too_long) || request.local.is_empty() {
            reasons.push(Status::InvalidArg);
        }
        let beyond = |idxs: &[u32], blocks: usize| idxs.iter().any(|idx| *idx as usize >= blocks);
        match self.peer(request.name) {
            None => reasons.push(Status::NotFound),
            Some(peer) => {
                if peer.fault.is_some() {
                    reasons.push(Status::PeerLost);
                }
                if beyond(&request.local, self.blocks) || beyond(&request.remote, peer.blocks.len())
                {
                    reasons.push(Status::OutOfRange);
                }
            }
        }
        reasons
    }

    /// A submission that was not refused for its arguments.
    pub(super) fn submitted(
        &mut self,
        request: Request,
        claim: usize,
        got: Result<XferId, Status>,
        mut facts: Vec<Fact>,
        world: &mut World,
    ) -> Verdict {
        ensure!(!facts.is_empty(), "nothing was started");
        let conn = self.peer(request.name).expect("it was accepted").conn;
        match facts.remove(0) {
            Fact::StartFailed(over, status) => {
                ensure!(got == Err(status), "start has failed: {status:?}");
                ensure!(over == conn && facts.is_empty(), "more has happened");
                // What this side lacks is not the peer's fault.
                if status != Status::NoMemory {
                    self.judge(conn, Err(status), world);
                }
                world.shadow.release(claim, &mut world.memories, false)
            }
            Fact::Started {
                op,
                conn: over,
                done,
            } => {
                ensure!(got == Ok(op), "the backend has started {op}");
                ensure!(over == conn, "it goes over another connection");
                let last = self.xfers.last().map_or(0, |last| last.id);
                ensure!(op > last, "ids are never used again");
                self.stats.transfers.submitted += 1;
                self.stats.transfers.inflight += 1;
                self.xfers.push(Xfer {
                    id: op,
                    name: request.name,
                    conn,
                    direction: request.direction,
                    bytes: (request.local.len() * self.block_len) as u64,
                    user_data: request.user_data,
                    held: request.message.is_some(),
                    message: request.message.unwrap_or_default(),
                    refused: false,
                    removed: false,
                    claim,
                    life: Life::Running { removed: false },
                });
                if done {
                    self.ended(op, Ok(()), world)?;
                    if !facts.is_empty() {
                        world.mark(Mark::SentFromStart);
                    }
                }
                ensure!(done || facts.is_empty(), "more has happened");
                self.learn(facts, world)
            }
            other => Err(format!("instead of a start: {other:?}")),
        }
    }

    /// The registration of `name` has ended.
    fn removed(&mut self, name: &str, facts: &mut Vec<Fact>, world: &mut World) -> Verdict {
        let at = self.peers.iter().position(|peer| peer.name == name);
        let peer = self.peers.remove(at.expect("it is registered"));
        for at in 0..self.xfers.len() {
            let (id, over) = (self.xfers[at].id, self.xfers[at].conn);
            match self.xfers[at].life {
                Life::Running { .. } | Life::Waiting if over != peer.conn => continue,
                Life::Running { .. } => match answer(facts, id)? {
                    Stop::Stopped => self.finish(at, Err(Status::Cancelled)),
                    Stop::Draining => self.xfers[at].life = Life::Running { removed: true },
                },
                Life::Waiting => {
                    world.mark(Mark::DroppedWaiting);
                    self.finish(at, Err(Status::Cancelled));
                }
                _ => continue,
            }
            self.xfers[at].removed = true;
        }
        take(facts, &Fact::Disconnected(peer.conn))
    }

    pub(super) fn remove(
        &mut self,
        name: &str,
        mut facts: Vec<Fact>,
        world: &mut World,
    ) -> Verdict {
        self.removed(name, &mut facts, world)?;
        nothing_more(&facts)
    }

    /// An add whose arguments are fine.
    pub(super) fn added(
        &mut self,
        addition: Addition,
        got: Outcome,
        mut facts: Vec<Fact>,
        world: &mut World,
    ) -> Verdict {
        ensure!(!facts.is_empty(), "nothing was connected");
        match facts.remove(0) {
            Fact::ConnectFailed(status) => {
                ensure!(got == Err(status), "connect has failed: {status:?}");
            }
            Fact::Connected { conn, replaces } => {
                ensure!(got == Ok(()), "the backend has connected");
                let old = self.peer(addition.name).map(|old| old.conn);
                ensure!(old == replaces, "it replaces {old:?}, not {replaces:?}");
                if old.is_some() {
                    world.mark(Mark::Replaced);
                    self.removed(addition.name, &mut facts, world)?;
                }
                self.peers.push(Peer {
                    name: addition.name,
                    conn,
                    target: addition.target,
                    blocks: addition.blocks,
                    failures: 0,
                    fault: None,
                });
            }
            other => return Err(format!("instead of a connection: {other:?}")),
        }
        nothing_more(&facts)
    }

    /// Completions that were handed out.
    pub(super) fn reported(
        &mut self,
        got: &[Completion],
        scope: Option<&str>,
        cap: usize,
        world: &mut World,
    ) -> Verdict {
        let meant = |id: &&XferId| {
            let xfer = &self.xfers[self.find(**id).expect("it was submitted")];
            scope.is_none_or(|name| name == xfer.name)
        };
        let expected: Vec<XferId> = self.ready.iter().filter(meant).take(cap).copied().collect();
        let ids: Vec<XferId> = got.iter().map(|completion| completion.id).collect();
        ensure!(ids == expected, "reported are {ids:?}, not {expected:?}");
        for completion in got {
            let at = self.find(completion.id).expect("it was expected");
            let xfer = &mut self.xfers[at];
            let result = completion.result;
            ensure!(
                xfer.life == Life::Ended(result),
                "{} is reported as {result:?}, not as {:?}",
                xfer.id,
                xfer.life
            );
            let bytes = if result.is_ok() { xfer.bytes } else { 0 };
            ensure!(
                (completion.bytes, completion.user_data) == (bytes, xfer.user_data),
                "{completion:?} instead of {bytes} bytes and {}",
                xfer.user_data
            );
            world.mark(match result {
                Ok(()) => Mark::Reported,
                Err(_) => Mark::ReportedFailed,
            });
            if xfer.removed {
                world.mark(Mark::ReportedOfRemoved);
            }
            xfer.life = Life::Over;
            self.release(at, result.is_ok(), world)?;
            self.ready.retain(|id| *id != completion.id);
        }
        Ok(())
    }

    /// The state of a posted read: `None` inside while it goes on.
    pub(super) fn state_of(
        &mut self,
        id: XferId,
        world: &mut World,
    ) -> Result<Option<Option<Outcome>>, String> {
        let Some(at) = self.find(id).filter(|at| self.xfers[*at].held) else {
            return Ok(None);
        };
        Ok(match self.xfers[at].life {
            Life::Draining | Life::Over => None,
            Life::Running { .. } | Life::Waiting => Some(None),
            Life::Ended(outcome) => {
                world.mark(match outcome {
                    Ok(()) => Mark::ReadDone,
                    Err(_) => Mark::ReadFailed,
                });
                self.release(at, outcome.is_ok(), world)?;
                Some(Some(outcome))
            }
        })
    }

    /// What a cancel leaves in flight. A release is a cancel of one.
    pub(super) fn cancelled(
        &mut self,
        ids: &[XferId],
        mode: CancelMode,
        mut facts: Vec<Fact>,
        world: &mut World,
    ) -> Result<Vec<XferId>, String> {
        let mut still = Vec::new();
        for (place, id) in ids.iter().enumerate() {
            if !ids[..place].contains(id)
                && let Some(at) = self.find(*id)
                && !self.drop_one(at, mode, &mut facts, world)?
            {
                world.mark(Mark::StillInFlight);
                still.push(*id);
            }
        }
        nothing_more(&facts)?;
        Ok(still)
    }

    /// False if it stays in flight.
    fn drop_one(
        &mut self,
        at: usize,
        mode: CancelMode,
        facts: &mut Vec<Fact>,
        world: &mut World,
    ) -> Result<bool, String> {
        let id = self.xfers[at].id;
        let life = match self.xfers[at].life {
            Life::Over | Life::Draining => return Ok(true),
            Life::Ended(_) => {
                world.mark(Mark::DroppedEnded);
                Life::Over
            }
            Life::Waiting => {
                world.mark(Mark::DroppedWaiting);
                Life::Over
            }
            Life::Running { .. } => match (answer(facts, id)?, mode) {
                (Stop::Stopped, _) => {
                    world.mark(Mark::DroppedRunning);
                    Life::Over
                }
                (Stop::Draining, CancelMode::Immediate) => Life::Draining,
                (Stop::Draining, CancelMode::Wait) => return Ok(false),
            },
        };
        let counts = &mut self.stats.transfers;
        if !matches!(self.xfers[at].life, Life::Ended(_)) {
            counts.inflight -= 1;
            counts.cancelled += 1;
        }
        counts.draining += u64::from(life == Life::Draining);
        self.xfers[at].life = life;
        self.ready.retain(|other| *other != id);
        self.waiting.retain(|other| *other != id);
        if life == Life::Over {
            self.release(at, false, world)?;
        }
        Ok(true)
    }

    /// A message that goes with no read: what must become of it.
    pub(super) fn sent_alone(
        &mut self,
        name: &str,
        message: &[u8],
        got: Outcome,
        facts: &[Fact],
        world: &mut World,
    ) -> Verdict {
        let peer = self.peer(name).expect("it was accepted");
        let conn = peer.conn;
        let mut waiting = self.waiting.iter();
        if waiting.any(|id| self.xfers[self.find(*id).expect("it was submitted")].conn == conn) {
            ensure!(
                got == Err(Status::Busy) && facts.is_empty(),
                "it overtakes messages of reads: {got:?}, {facts:?}"
            );
            return Ok(());
        }
        let [
            Fact::Sent {
                conn: over,
                message: sent,
                result,
            },
        ] = facts
        else {
            return Err(format!("instead of a message: {facts:?}"));
        };
        ensure!(*over == conn && sent == message, "another message goes");
        ensure!(got == *result, "the backend says {result:?}");
        match result {
            Ok(()) => self.stats.messages.sent += 1,
            Err(Status::Busy | Status::NoMemory) => self.no_room += 1,
            Err(Status::PeerLost) => self.judge(conn, *result, world),
            Err(_) => {}
        }
        Ok(())
    }

    /// What a close did. True if nothing of the transport touches memory any more.
    pub(super) fn closed(
        &mut self,
        first: bool,
        mut facts: Vec<Fact>,
        world: &mut World,
    ) -> Result<bool, String> {
        if first {
            for at in 0..self.xfers.len() {
                if matches!(self.xfers[at].life, Life::Running { .. } | Life::Waiting) {
                    self.drop_one(at, CancelMode::Immediate, &mut facts, world)?;
                }
            }
            self.ready.clear();
            for peer in std::mem::take(&mut self.peers) {
                take(&mut facts, &Fact::Disconnected(peer.conn))?;
            }
        }
        let closed = facts.contains(&Fact::Closed(Ok(())));
        let kept = |fact: &Fact| !matches!(fact, Fact::Closed(_) | Fact::Forced);
        self.learn(facts.into_iter().filter(kept).collect(), world)?;
        ensure!(
            !closed || self.stats.transfers.draining == 0,
            "closed, but transfers drain"
        );
        Ok(closed)
    }
}

/// What the backend said when a transfer was to stop. It is asked once.
fn answer(facts: &mut Vec<Fact>, id: XferId) -> Result<Stop, String> {
    let asked = |fact: &Fact| matches!(fact, Fact::Stop(op, _) if *op == id);
    match facts.iter().position(asked).map(|at| facts.remove(at)) {
        Some(Fact::Stop(_, answer)) => Ok(answer),
        _ => Err(format!("transfer {id} was not asked to stop")),
    }
}

fn take(facts: &mut Vec<Fact>, fact: &Fact) -> Verdict {
    let at = facts.iter().position(|other| other == fact);
    let at = at.ok_or(format!("this is missing: {fact:?}"))?;
    facts.remove(at);
    Ok(())
}
