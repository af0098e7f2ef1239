//! What a backend says, and what follows from it for the model of its transport.

use super::marks::Mark;
use super::model::{Life, Model, Outcome, ensure};
use super::world::{Fact, Verdict, World};
use crate::backend::Direction;
use crate::error::Status;
use crate::transport::XferId;

impl Model {
    /// Takes in what the backend told, in its order.
    pub(super) fn learn(&mut self, facts: Vec<Fact>, world: &mut World) -> Verdict {
        let mut tried = Vec::new();
        for fact in facts {
            match fact {
                Fact::Progress => tried.clear(),
                Fact::Ended(id, result) => self.ended(id, result, world)?,
                Fact::Lost(conn) => self.judge(conn, Err(Status::PeerLost), world),
                Fact::Sent {
                    conn,
                    message,
                    result,
                } => {
                    tried.push(conn);
                    self.sent(conn, &message, result, world)?;
                }
                Fact::Received(come) => {
                    for message in come {
                        let named = !message.sender.is_empty() && !message.sender.contains('\0');
                        if named {
                            self.inbox.push_back(message);
                        } else {
                            world.mark(Mark::Nameless);
                            self.nameless += 1;
                        }
                    }
                }
                other => return Err(format!("unexpected: {other:?}")),
            }
        }
        Ok(())
    }

    /// As [`learn`](Self::learn), for a call that drives work: messages that wait were tried.
    pub(super) fn drive(&mut self, facts: Vec<Fact>, world: &mut World) -> Verdict {
        let last = facts.iter().rposition(|fact| *fact == Fact::Progress);
        let Some(last) = last else {
            return Err("the backend had no turn".into());
        };
        let tried: Vec<u64> = facts[last..]
            .iter()
            .filter_map(|fact| match fact {
                Fact::Sent { conn, .. } => Some(*conn),
                _ => None,
            })
            .collect();
        self.learn(facts, world)?;
        for id in &self.waiting {
            let conn = self.xfers[self.find(*id).expect("it was submitted")].conn;
            ensure!(
                tried.contains(&conn),
                "the message of read {id} was not tried"
            );
        }
        Ok(())
    }

    pub(super) fn ended(&mut self, id: XferId, result: Outcome, world: &mut World) -> Verdict {
        let Some(at) = self.find(id) else {
            return Ok(());
        };
        let xfer = &mut self.xfers[at];
        match xfer.life {
            Life::Running { removed: true } => self.finish(at, Err(Status::Cancelled)),
            Life::Running { removed: false } => {
                if result.is_ok() && !xfer.message.is_empty() {
                    xfer.life = Life::Waiting;
                    self.waiting.push(id);
                } else {
                    let conn = xfer.conn;
                    self.finish(at, result);
                    self.judge(conn, result, world);
                }
            }
            Life::Draining => {
                let conn = xfer.conn;
                xfer.life = Life::Over;
                self.stats.transfers.draining -= 1;
                self.release(at, false, world)?;
                self.judge(conn, result, world);
            }
            // It is known how it ended.
            Life::Waiting | Life::Ended(_) | Life::Over => {}
        }
        Ok(())
    }

    /// A message that went, or did not.
    pub(super) fn sent(
        &mut self,
        conn: u64,
        message: &[u8],
        result: Outcome,
        world: &mut World,
    ) -> Verdict {
        let over =
            |model: &Model, id: &XferId| model.find(*id).filter(|at| model.xfers[*at].conn == conn);
        let Some(at) = self.waiting.iter().find_map(|id| over(self, id)) else {
            return Err(format!("a message without a read goes over {conn}"));
        };
        let xfer = &mut self.xfers[at];
        ensure!(
            xfer.message == message,
            "the message of read {} is to go next over {conn}, but another one goes",
            xfer.id
        );
        if matches!(result, Err(Status::Busy | Status::NoMemory)) {
            self.no_room += u64::from(!std::mem::replace(&mut xfer.refused, true));
            return Ok(());
        }
        if result.is_ok() {
            world.mark(match xfer.refused {
                true => Mark::SentLate,
                false => Mark::SentFirst,
            });
            self.stats.messages.sent += 1;
        }
        self.finish(at, result);
        self.judge(conn, result, world);
        Ok(())
    }

    /// What an outcome means for the peer.
    pub(super) fn judge(&mut self, conn: u64, result: Outcome, world: &mut World) {
        let peer = self.peers.iter_mut().find(|peer| peer.conn == conn);
        let Some(peer) = peer else {
            return;
        };
        match result {
            Ok(()) => peer.failures = 0,
            Err(Status::Cancelled) => {}
            Err(status) => {
                peer.failures += 1;
                if peer.fault.is_none() && (status == Status::PeerLost || peer.failures >= 3) {
                    if status != Status::PeerLost {
                        world.mark(Mark::Strikes);
                    }
                    peer.fault = Some(status);
                }
            }
        }
    }

    /// The outcome is known, and stays.
    pub(super) fn finish(&mut self, at: usize, outcome: Outcome) {
        let xfer = &mut self.xfers[at];
        let counts = &mut self.stats.transfers;
        xfer.life = Life::Ended(outcome);
        counts.inflight -= 1;
        match (outcome, xfer.direction) {
            (Ok(()), Direction::Write) => counts.bytes_written += xfer.bytes,
            (Ok(()), Direction::Read) => counts.bytes_read += xfer.bytes,
            _ => {}
        }
        match outcome {
            Ok(()) => counts.done += 1,
            Err(Status::Cancelled) => counts.cancelled += 1,
            Err(_) => counts.failed += 1,
        }
        let id = xfer.id;
        if !xfer.held {
            self.ready.push(id);
        }
        self.waiting.retain(|other| *other != id);
    }

    pub(super) fn release(&self, at: usize, done: bool, world: &mut World) -> Verdict {
        let xfer = &self.xfers[at];
        ensure!(
            !world.is_live(self.agent, xfer.id),
            "transfer {} is said to be quiescent, but it can touch memory",
            xfer.id
        );
        let verdict = world.shadow.release(xfer.claim, &mut world.memories, done);
        verdict.map_err(|breach| format!("transfer {}: {breach}", xfer.id))
    }
}
