//! What a program chooses from, and the calls that are about neither peers nor transfers.

use std::time::Duration;

use super::backend::metadata_of;
use super::marks::Mark;
use super::model::{Model, Phase, ensure, nothing_more};
use super::program::NODES;
use super::run::{BUDGET, NAMES, Run};
use super::world::Verdict;
use crate::backend::MAX_MESSAGE;
use crate::error::Status;
use crate::transport::XferId;

impl Run {
    pub(super) fn one_of<T: Copy>(&mut self, list: &[T]) -> T {
        list[self.numbers.usize(..list.len())]
    }

    pub(super) fn one_in(&mut self, times: u32) -> bool {
        self.numbers.u32(..times) == 0
    }

    pub(super) fn model(&mut self, at: usize) -> &mut Model {
        &mut self.nodes[at].model
    }

    /// The agent to add: most often one that lives; itself, too.
    pub(super) fn some_agent(&mut self) -> usize {
        if self.one_in(12) {
            let all = self.world.lock().agents.len();
            return self.numbers.usize(..all);
        }
        let node = self.numbers.usize(..NODES);
        self.nodes[node].model.agent
    }

    /// A peer of a node, or any name.
    pub(super) fn some_peer(&mut self, at: usize) -> &'static str {
        let peers = &self.nodes[at].model.peers;
        if peers.is_empty() || self.numbers.u8(..12) == 0 {
            return self.one_of(&NAMES);
        }
        peers[self.numbers.usize(..peers.len())].name
    }

    /// An id of a node, most often one of the last, or one that is none.
    pub(super) fn some_id(&mut self, at: usize) -> XferId {
        let nothing = [0, u64::MAX, 1 << 32];
        let back = match self.one_in(3) {
            true => self.numbers.usize(..60),
            false => self.numbers.usize(..5),
        };
        let id = self.nodes[at].model.ids().rev().nth(back);
        match id {
            Some(id) if !self.one_in(16) => id,
            _ => self.one_of(&nothing),
        }
    }

    /// Most often that of a posted read.
    pub(super) fn some_handle(&mut self, at: usize) -> XferId {
        let handles = self.nodes[at].model.handles();
        match handles.is_empty() || self.one_in(4) {
            true => self.some_id(at),
            false => self.one_of(&handles),
        }
    }

    pub(super) fn timeout(&mut self) -> Duration {
        Duration::from_micros(self.one_of(&[0, 30, 400, 3000]))
    }

    /// No two are alike, but for the shortest.
    pub(super) fn some_message(&mut self) -> Vec<u8> {
        self.messages += 1;
        let mut message = self.messages.to_le_bytes().to_vec();
        let len = match self.one_in(2000) {
            true => MAX_MESSAGE,
            false => self.numbers.usize(1..20),
        };
        message.resize(len, 7);
        message
    }

    pub(super) fn region_of(&self, agent: usize) -> (u64, usize, usize) {
        let agent = &self.world.lock().agents[agent];
        (agent.base, agent.blocks, agent.block_len)
    }

    pub(super) fn send(&mut self, at: usize) -> Verdict {
        let name = self.some_peer(at);
        let mut message = self.some_message();
        let wrong = self.one_in(12);
        if wrong {
            message.resize([0, MAX_MESSAGE + 1][self.numbers.usize(..2)], 0);
        }
        let Ok(got) = self.call(at, |transport| transport.send(name, &message))? else {
            return Ok(());
        };
        let facts = self.facts();
        let world = &mut *self.world.lock();
        let model = &mut self.nodes[at].model;
        let refusal = match model.peer(name) {
            _ if wrong => Some(Status::InvalidArg),
            None => Some(Status::NotFound),
            Some(peer) => peer.fault.map(|_| Status::PeerLost),
        };
        if let Some(status) = refusal {
            world.mark(Mark::Refused);
            ensure!(got == Err(status), "{got:?} instead of {status:?}");
            return nothing_more(&facts);
        }
        model.sent_alone(name, &message, got, &facts, world)
    }

    pub(super) fn receive(&mut self, at: usize) -> Verdict {
        let cap = self.one_of(&[0, 1, 2, 9]);
        let room = self.numbers.usize(..5);
        self.receive_this(at, cap, room)
    }

    pub(super) fn receive_all(&mut self, at: usize) -> Verdict {
        self.receive_this(at, usize::MAX, usize::MAX)?;
        let world = self.world.lock();
        let model = &self.nodes[at].model;
        ensure!(
            world.agents[model.agent].inbox.is_empty() && model.inbox.is_empty(),
            "messages stay with the backend"
        );
        Ok(())
    }

    fn receive_this(&mut self, at: usize, cap: usize, room: usize) -> Verdict {
        let mut got = Vec::new();
        let mut refused = None;
        let result = self.call(at, |transport| {
            transport.receive(cap, &mut |message| {
                if got.len() == room {
                    refused = Some(message.clone());
                    return false;
                }
                got.push(message.clone());
                true
            })
        })?;
        let Ok(result) = result else {
            return Ok(());
        };
        ensure!(result == Ok(()), "{result:?}");
        ensure!(got.len() <= cap, "more than was asked for");
        let facts = self.facts();
        let world = &mut *self.world.lock();
        let model = &mut self.nodes[at].model;
        model.drive(facts, world)?;
        model.stats.messages.received += got.len() as u64;
        for message in got {
            let expected = model.inbox.pop_front();
            ensure!(expected.as_ref() == Some(&message), "not {expected:?}");
        }
        if let Some(message) = refused {
            world.mark(Mark::MessageStays);
            ensure!(model.inbox.front() == Some(&message), "it is not the next");
        }
        Ok(())
    }

    pub(super) fn describe(&mut self, at: usize) -> Verdict {
        let agent = self.model(at).agent;
        let (base, blocks, block_len) = self.region_of(agent);
        let transport = self.transport(at);
        let region = transport.region();
        let facts = (region.base(), region.num_blocks(), region.block_len());
        ensure!(
            facts == (base, blocks as u64, block_len as u64),
            "it has {region:?}"
        );
        ensure!(
            transport.fingerprint() == self.nodes[at].fingerprint,
            "its fingerprint has changed"
        );
        if let Ok(metadata) = self.call(at, |transport| transport.agent_metadata())? {
            ensure!(metadata == Ok(metadata_of(agent)), "{metadata:?}");
        }
        let list = self.call(at, |transport| transport.mem_descriptor())?;
        if let Ok(Ok(list)) = list {
            let len = self.call(at, |transport| transport.mem_descriptor_len())?;
            ensure!(len == Ok(Ok(list.len())), "{len:?} of {}", list.len());
        }
        Ok(())
    }

    pub(super) fn close(&mut self, at: usize) -> Verdict {
        let timeout = self.timeout();
        self.close_within(at, timeout)
    }

    pub(super) fn close_within(&mut self, at: usize, timeout: Duration) -> Verdict {
        let start = self.clock.now();
        let got = self.transport(at).close(timeout);
        let got = got.map_err(|error| error.status);
        self.note(|| format!("    {got:?}"));
        let took = self.clock.now() - start;
        let facts = self.facts();
        let world = &mut *self.world.lock();
        let model = &mut self.nodes[at].model;
        if model.broken {
            ensure!(got == Err(Status::Internal), "{got:?} of a broken one");
            return nothing_more(&facts);
        }
        ensure!(
            took <= timeout + 4 * BUDGET,
            "it took {took:?} of {timeout:?}"
        );
        if model.phase == Phase::Closed {
            world.mark(Mark::CloseAgain);
            ensure!(got == Ok(()), "{got:?} of a closed one");
            return nothing_more(&facts);
        }
        let first = model.phase == Phase::Open;
        model.phase = Phase::Closing;
        if model.closed(first, facts, world)? {
            ensure!(got == Ok(()), "{got:?}, though it is closed");
            model.phase = Phase::Closed;
            world
                .shadow
                .release_all_of(model.agent, &mut world.memories);
        } else {
            world.mark(Mark::CloseTimeout);
            ensure!(
                got == Err(Status::Timeout),
                "{got:?}, though it is not closed"
            );
            ensure!(took >= timeout, "{took:?} of {timeout:?}");
        }
        Ok(())
    }

    pub(super) fn destroy(&mut self, at: usize) -> Verdict {
        self.finish_node(at)?;
        self.nodes[at] = self.make_node(at);
        Ok(())
    }

    /// The process of a node dies, and another one starts in its place.
    pub(super) fn kill(&mut self, at: usize) -> Verdict {
        let agent = self.model(at).agent;
        self.world.lock().kill(agent);
        drop(self.nodes[at].transport.take());
        let facts = self.facts();
        nothing_more(&facts)?;
        self.nodes[at] = self.make_node(at);
        Ok(())
    }

    pub(super) fn break_it(&mut self, at: usize) -> Verdict {
        // One that is broken does nothing more.
        if self.one_in(6) {
            self.transport(at).mark_broken();
            self.model(at).broken = true;
        }
        Ok(())
    }

    pub(super) fn lose(&mut self, at: usize) -> Verdict {
        let agent = self.model(at).agent;
        let world = &mut *self.world.lock();
        let conns = &mut world.agents[agent].conns;
        if !conns.is_empty() {
            let some = self.numbers.usize(..conns.len());
            conns[some].broken = true;
        }
        Ok(())
    }

    pub(super) fn foreign(&mut self, at: usize) -> Verdict {
        let sender = self.one_of(&["far", "far", "", "na\0me"]);
        let message = self.some_message();
        let agent = self.model(at).agent;
        let world = &mut *self.world.lock();
        if !world.deliver(agent, sender.into(), &message) {
            world.agents[agent].refused += 1;
        }
        Ok(())
    }
}
