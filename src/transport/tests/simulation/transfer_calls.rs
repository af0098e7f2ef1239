//! Calls about transfers, with what a program chooses for them.

use super::marks::Mark;
use super::model::{Request, ensure, nothing_more};
use super::program::Call;
use super::run::{BUDGET, NAMES, Run};
use super::world::Verdict;
use crate::backend::{Direction, MAX_MESSAGE};
use crate::error::Status;
use crate::transport::{CancelMode, ReadState, XferId};

impl Run {
    pub(super) fn submit(&mut self, at: usize, call: Call) -> Verdict {
        let request = self.some_request(at, call);
        self.submit_this(at, request)
    }

    fn some_request(&mut self, at: usize, call: Call) -> Request {
        let name = self.some_peer(at);
        let count = self.one_of(&[1, 1, 2, 3, 4, 7]);
        let (agent, blocks, block_len) = {
            let model = self.model(at);
            (model.agent, model.blocks, model.block_len)
        };
        let peer = self.nodes[at].model.peer(name);
        let (target, theirs) = match peer {
            Some(peer) => (peer.target, peer.blocks.clone()),
            None => (agent, vec![0]),
        };
        // Blocks that nothing else uses let bytes be compared. In a row, runs are merged.
        let careful = !self.one_in(4);
        let row = self.numbers.bool();
        let (mut local, mut remote) = (Vec::new(), Vec::new());
        let world = self.world.lock();
        let mut next = (
            self.numbers.usize(..blocks),
            self.numbers.usize(..theirs.len()),
        );
        for _ in 0..count * 2 {
            let pair = match row {
                true => next,
                false => (
                    self.numbers.usize(..blocks),
                    self.numbers.usize(..theirs.len()),
                ),
            };
            next = ((pair.0 + 1) % blocks, (pair.1 + 1) % theirs.len());
            let used = local.contains(&(pair.0 as u32)) || remote.contains(&(pair.1 as u32));
            let is_free = !used
                && world.memories[agent].is_free(pair.0 * block_len, block_len)
                && world.memories[target].is_free(theirs[pair.1], block_len);
            if local.len() < count && (is_free || !careful) {
                local.push(pair.0 as u32);
                remote.push(pair.1 as u32);
            }
        }
        drop(world);
        if local.is_empty() {
            local.push(next.0 as u32);
            remote.push(next.1 as u32);
        }
        let message = (call == Call::PostRead).then(|| match self.one_in(4) {
            true => Vec::new(),
            false => self.some_message(),
        });
        Request {
            name,
            direction: match call {
                Call::Write => Direction::Write,
                _ => Direction::Read,
            },
            local,
            remote,
            // A posted read has none.
            user_data: match message {
                None => self.numbers.u64(..),
                Some(_) => 0,
            },
            message,
        }
    }

    fn submit_this(&mut self, at: usize, request: Request) -> Verdict {
        self.note(|| format!("    {request:?}"));
        let refusals = self.model(at).refusals(&request);
        let claim = match refusals.is_empty() {
            true => Some(self.claim(at, &request)),
            false => None,
        };
        let (direction, name) = (request.direction, request.name);
        let got = self.call(at, |transport| match &request.message {
            None => transport.submit(
                direction,
                name,
                &request.local,
                &request.remote,
                request.user_data,
            ),
            Some(message) => transport.post_read(name, &request.local, &request.remote, message),
        })?;
        let Ok(got) = got else {
            return Ok(());
        };
        let facts = self.facts();
        let world = &mut *self.world.lock();
        let Some(claim) = claim else {
            world.mark(Mark::Refused);
            ensure!(
                got.is_err_and(|status| refusals.contains(&status)),
                "{got:?} instead of one of {refusals:?}"
            );
            return nothing_more(&facts);
        };
        world.submitted = None;
        self.nodes[at]
            .model
            .submitted(request, claim, got, facts, world)
    }

    fn claim(&mut self, at: usize, request: &Request) -> usize {
        let model = &self.nodes[at].model;
        let peer = model.peer(request.name).expect("it is not refused");
        let pairs = request.local.iter().zip(&request.remote);
        let pairs = pairs.map(|(local, remote)| {
            (
                *local as usize * model.block_len,
                peer.blocks[*remote as usize],
            )
        });
        let world = &mut *self.world.lock();
        let claim = world.shadow.claim(
            &mut world.memories,
            (model.agent, peer.target),
            request.direction,
            model.block_len,
            pairs.collect(),
        );
        world.submitted = Some(claim);
        claim
    }

    pub(super) fn submit_wrong(&mut self, at: usize) -> Verdict {
        let call = self.one_of(&[Call::Write, Call::Read, Call::PostRead]);
        let mut request = self.some_request(at, call);
        let some = self.numbers.usize(..request.local.len());
        match self.numbers.u8(..5) {
            0 => request.local[some] = self.model(at).blocks as u32,
            1 => request.local[some] = u32::MAX,
            2 => request.remote[some] = u32::MAX - 1,
            3 => {
                request.local.clear();
                request.remote.clear();
            }
            _ => match &mut request.message {
                Some(message) => message.resize(MAX_MESSAGE + 1, 1),
                None => request.remote[some] = 1 << 20,
            },
        }
        self.submit_this(at, request)
    }

    /// More transfers than are handled in one go, half the time with nothing in their way.
    pub(super) fn flood(&mut self, at: usize) -> Verdict {
        let call = self.one_of(&[Call::Write, Call::PostRead]);
        let mut peers = self.model(at).peers.iter();
        let healthy = peers.find(|peer| peer.fault.is_none());
        let Some(name) = healthy.map(|peer| peer.name) else {
            return Ok(());
        };
        let calm = self.numbers.bool();
        self.world.lock().calm = calm;
        for _ in 0..self.numbers.usize(60..160) {
            let mut request = self.some_request(at, call);
            (request.name, request.local, request.remote) = (name, vec![0], vec![0]);
            self.submit_this(at, request)?;
            if self.one_in(8) {
                self.poll_this(at, Some(name), usize::MAX)?;
            }
        }
        // What has ended is found by whom it was not looked for.
        self.poll_this(at, Some(name), 0)?;
        self.poll_all(at)?;
        self.world.lock().calm = false;
        Ok(())
    }

    pub(super) fn read_state(&mut self, at: usize) -> Verdict {
        let id = self.some_handle(at);
        self.read_state_of(at, id)
    }

    pub(super) fn read_state_of(&mut self, at: usize, id: XferId) -> Verdict {
        let Ok(got) = self.call(at, |transport| transport.read_state(id))? else {
            return Ok(());
        };
        let facts = self.facts();
        let world = &mut *self.world.lock();
        let model = &mut self.nodes[at].model;
        model.drive(facts, world)?;
        let expected = match model.state_of(id, world)? {
            None => Err(Status::NotFound),
            Some(None) => Ok(ReadState::Running),
            Some(Some(outcome)) => Ok(ReadState::Ended(outcome)),
        };
        ensure!(got == expected, "{id} is {got:?}, not {expected:?}");
        Ok(())
    }

    pub(super) fn release_read(&mut self, at: usize) -> Verdict {
        let id = self.some_handle(at);
        self.release(at, id)
    }

    pub(super) fn release(&mut self, at: usize, id: XferId) -> Verdict {
        let Ok(got) = self.call(at, |transport| transport.release_read(id))? else {
            return Ok(());
        };
        let facts = self.facts();
        let world = &mut *self.world.lock();
        let model = &mut self.nodes[at].model;
        if !model.handles().contains(&id) {
            world.mark(Mark::Refused);
            ensure!(got == Err(Status::NotFound), "{got:?} of no read");
            return nothing_more(&facts);
        }
        ensure!(got == Ok(()), "{got:?} of a read");
        model.cancelled(&[id], CancelMode::Immediate, facts, world)?;
        Ok(())
    }

    pub(super) fn poll(&mut self, at: usize) -> Verdict {
        let scope = self.some_scope();
        let cap = self.one_of(&[0, 1, 2, 5, usize::MAX]);
        self.poll_this(at, scope, cap)
    }

    pub(super) fn poll_all(&mut self, at: usize) -> Verdict {
        self.poll_this(at, None, usize::MAX)
    }

    fn some_scope(&mut self) -> Option<&'static str> {
        match self.numbers.bool() {
            true => None,
            false => Some(self.one_of(&NAMES)),
        }
    }

    fn poll_this(&mut self, at: usize, scope: Option<&'static str>, cap: usize) -> Verdict {
        let mut got = Vec::new();
        let counted = self.call(at, |transport| {
            transport.poll(scope, cap, &mut |completion| {
                assert!(got.len() < 10_000, "there is no end of completions");
                got.push(completion);
            })
        })?;
        let Ok(counted) = counted else {
            return Ok(());
        };
        ensure!(counted == Ok(got.len()), "{counted:?} of {got:?}");
        let facts = self.facts();
        let world = &mut *self.world.lock();
        let model = &mut self.nodes[at].model;
        model.stats.polls += 1;
        model.drive(facts, world)?;
        model.reported(&got, scope, cap, world)
    }

    pub(super) fn wait(&mut self, at: usize) -> Verdict {
        let scope = self.some_scope();
        let cap = self.one_of(&[0, 1, 3]);
        let timeout = self.timeout();
        let start = self.clock.now();
        let mut got = Vec::new();
        let counted = self.call(at, |transport| {
            transport.wait(scope, cap, timeout, &mut |completion| got.push(completion))
        })?;
        let Ok(counted) = counted else {
            return Ok(());
        };
        ensure!(counted == Ok(got.len()), "{counted:?} of {got:?}");
        let took = self.clock.now() - start;
        ensure!(
            took <= timeout + 2 * BUDGET,
            "it took {took:?} of {timeout:?}"
        );
        let facts = self.facts();
        let world = &mut *self.world.lock();
        let model = &mut self.nodes[at].model;
        model.stats.polls += 1;
        model.drive(facts, world)?;
        let early = got.is_empty() && took < timeout;
        ensure!(
            !early || cap == 0 && model.has_ready_of(scope),
            "it came back after {took:?} of {timeout:?} with nothing"
        );
        if got.is_empty() && !early {
            world.mark(Mark::WaitTimeout);
        }
        model.reported(&got, scope, cap, world)
    }

    pub(super) fn cancel(&mut self, at: usize, mode: CancelMode) -> Verdict {
        let count = self.numbers.usize(..6);
        let ids: Vec<XferId> = (0..count).map(|_| self.some_id(at)).collect();
        self.note(|| format!("    {ids:?}"));
        let Ok(got) = self.call(at, |transport| transport.cancel(&ids, mode))? else {
            return Ok(());
        };
        let facts = self.facts();
        let world = &mut *self.world.lock();
        let still = self.nodes[at].model.cancelled(&ids, mode, facts, world)?;
        ensure!(
            got.as_ref() == Ok(&still),
            "{got:?} are in flight, not {still:?}"
        );
        Ok(())
    }
}
