//! The simulated backend: what a transport asks of it, done in the simulated machine.

use std::sync::Arc;
use std::time::{Duration, Instant};

use parking_lot::Mutex;

use super::marks::Mark;
use super::world::{Conn, Fact, Life, Op, World, status_of};
use crate::backend::{
    Backend, ConnId, Direction, Event, Kind, MAX_MESSAGE, Message, OpId, Start, Stop,
};
use crate::error::{Result, Status};
use crate::extents::{Cursor, Runs};
use crate::layout::Layout;

/// The backend of one agent.
pub(super) struct Simulated {
    world: Arc<Mutex<World>>,
    agent: usize,
    metadata: Vec<u8>,
}

impl Simulated {
    pub(super) fn new(world: Arc<Mutex<World>>, agent: usize) -> Simulated {
        Simulated {
            world,
            agent,
            metadata: metadata_of(agent),
        }
    }
}

/// What peers need to reach an agent.
pub(super) fn metadata_of(agent: usize) -> Vec<u8> {
    let mut metadata = b"sim".to_vec();
    metadata.push(agent as u8);
    metadata
}

fn agent_of(world: &World, metadata: &[u8]) -> Result<usize> {
    match metadata {
        [b's', b'i', b'm', agent] if usize::from(*agent) < world.agents.len() => {
            Ok(usize::from(*agent))
        }
        _ => Err(World::error(Status::InvalidArg)),
    }
}

impl World {
    /// Objects to a call that comes too late, or out of turn.
    fn check_call(&mut self, agent: usize, name: &str) {
        let (life, owed) = (self.agents[agent].life, self.agents[agent].owed);
        if life != Life::Up {
            self.object(format!("{name} after close"));
        }
        if let Some(owed) = owed
            && !["stop", "disconnect"].contains(&name)
        {
            self.object(format!("{name} before connection {owed} was given up"));
        }
    }

    fn connect(
        &mut self,
        agent: usize,
        conn: u64,
        metadata: &[u8],
        remote: &Layout,
        replaces: Option<u64>,
    ) -> Result<()> {
        if replaces.is_some_and(|old| self.conn(agent, old).is_none()) {
            self.object("in place of a connection that does not exist");
        }
        if conn <= self.agents[agent].last_conn {
            self.object("the number of a connection is used again");
        }
        self.agents[agent].last_conn = conn;
        let target = agent_of(self, metadata)?;
        if self.fails(self.rates.connect) {
            self.mark(Mark::ConnectFailed);
            return Err(World::error(self.any_of(&[
                Status::Backend,
                Status::NoMemory,
                Status::Busy,
                Status::Unavailable,
                Status::PeerLost,
                Status::Incompatible,
            ])));
        }
        let there = &self.agents[target];
        let end = there.base + (there.blocks * there.block_len) as u64;
        if there.life != Life::Up {
            self.mark(Mark::ConnectGone);
            return Err(World::error(Status::PeerLost));
        }
        if remote.base() < there.base || remote.end() > end {
            self.mark(Mark::ConnectOutside);
            return Err(World::error(Status::Incompatible));
        }
        let offset = (remote.base() - there.base) as usize;
        self.agents[agent].owed = replaces;
        self.agents[agent].conns.push(Conn {
            id: conn,
            target,
            offset,
            broken: false,
            told: false,
        });
        Ok(())
    }

    fn disconnect(&mut self, agent: usize, conn: u64) {
        let at = self.agents[agent].conns.iter().position(|c| c.id == conn);
        let Some(at) = at else {
            return self.object("a connection that does not exist is given up");
        };
        let here = &mut self.agents[agent];
        let gone = here.conns.remove(at);
        if here.owed == Some(conn) {
            here.owed = None;
        }
        let waiting = here.pending.iter().filter(|news| news.conn == conn);
        let unasked = waiting.filter(|news| !news.asked).count();
        here.ghosts.push(gone);
        let mut ops = self.ops.iter();
        if unasked > 0 || ops.any(|op| op.agent == agent && op.conn == conn && !op.asked) {
            self.object("a connection is given up before its transfers were asked to stop");
        }
    }

    fn start(&mut self, agent: usize, conn: u64, id: u64, runs: &mut Runs) -> Result<Start> {
        let Some(over) = self.conn(agent, conn).cloned() else {
            self.object("start over a connection that does not exist");
            return Err(World::error(Status::Internal));
        };
        if self.is_known(agent, id) || self.agents[agent].over.contains(&id) {
            self.object("the number of a transfer is used again");
        }
        let Some(claim) = self.submitted.take() else {
            self.object("a transfer that nobody has submitted");
            return Err(World::error(Status::Internal));
        };
        let gone = self.is_gone(&over);
        if gone && self.numbers.bool() {
            self.mark(Mark::StartGone);
            return Err(World::error(Status::PeerLost));
        }
        if self.fails(self.rates.start) {
            self.mark(Mark::StartFailed);
            return Err(World::error(self.some_failure()));
        }
        let inline = !gone && self.chance(self.rates.inline);
        let fails = !inline && self.chance(self.rates.fail);
        let fails_after = fails.then(|| self.numbers.u8(..6));
        self.ops.push(Op {
            agent,
            id,
            conn,
            target: over.target,
            offset: over.offset,
            cursor: Cursor::new(runs.clone()),
            claim,
            moved: 0,
            asked: false,
            fails_after,
        });
        if inline {
            self.mark(Mark::Inline);
            while !self.advance(self.ops.len() - 1, usize::MAX) {}
            self.agents[agent].pending.pop();
            self.agents[agent].over.push(id);
            return Ok(Start::Done);
        }
        Ok(Start::Running)
    }

    fn stop(&mut self, agent: usize, id: u64) -> Stop {
        let mut ops = self.ops.iter();
        let at = ops.position(|op| op.agent == agent && op.id == id);
        let mut pending = self.agents[agent].pending.iter();
        let news = pending.position(|news| news.ends(id));
        if at.is_none() && news.is_none() {
            self.object(format!("transfer {id} has ended, and is asked to stop"));
            return Stop::Stopped;
        }
        let drains = self.fails(self.rates.drain);
        let asked = match (at, news) {
            (Some(at), _) => &mut self.ops[at].asked,
            (_, Some(news)) => &mut self.agents[agent].pending[news].asked,
            _ => unreachable!("one of them was found"),
        };
        if std::mem::replace(asked, true) {
            self.mark(Mark::AskedAgain);
        }
        if drains {
            self.mark(match at {
                Some(_) => Mark::Drains,
                None => Mark::DrainsNews,
            });
            return Stop::Draining;
        }
        if let Some(at) = at {
            self.mark(Mark::Stopped);
            self.ops.remove(at);
        } else if let Some(news) = news {
            self.mark(Mark::StoppedNews);
            self.agents[agent].pending.remove(news);
        }
        self.agents[agent].over.push(id);
        Stop::Stopped
    }

    fn send(&mut self, agent: usize, conn: u64, message: &[u8]) -> Result<()> {
        let Some(over) = self.conn(agent, conn).cloned() else {
            self.object("send over a connection that does not exist");
            return Err(World::error(Status::Internal));
        };
        if !(1..=MAX_MESSAGE).contains(&message.len()) {
            self.object(format!("a message of {} bytes", message.len()));
        }
        if self.fails(self.rates.send) {
            self.mark(Mark::SendFailed);
            let status = match self.some_failure() {
                // These would say that there is no room.
                Status::Busy | Status::NoMemory => Status::Unavailable,
                other => other,
            };
            return Err(World::error(status));
        }
        if self.is_gone(&over) {
            // That nobody is there is not always known, and then what was sent is lost with the peer.
            return match self.calm || self.numbers.bool() {
                true => Err(World::error(Status::PeerLost)),
                false => Ok(()),
            };
        }
        let sender = self.agents[agent].name.clone();
        let room = !self.chance(self.rates.busy);
        if !room || !self.deliver(over.target, sender, message) {
            self.mark(Mark::SendBusy);
            return Err(World::error(self.any_of(&[Status::Busy, Status::NoMemory])));
        }
        Ok(())
    }

    fn receive(&mut self, agent: usize, most: usize) -> Vec<Message> {
        let mut count = most.min(self.agents[agent].inbox.len());
        if count > 0 && self.fails(self.rates.few) {
            self.mark(Mark::ReceiveFew);
            count = self.numbers.usize(..count);
        }
        let mut come = Vec::new();
        for _ in 0..count {
            // Any sender's turn, and the first one of that sender.
            let any = self.numbers.usize(..self.agents[agent].inbox.len());
            let inbox = &mut self.agents[agent].inbox;
            let sender = inbox[any].sender.clone();
            let first = inbox.iter().position(|message| message.sender == sender);
            come.push(inbox.remove(first.expect("at least that one")));
        }
        come
    }

    fn progress(&mut self, agent: usize, deadline: Instant, events: &mut Vec<Event>) {
        let left = deadline.saturating_duration_since(self.clock.now());
        // Up to one small piece more.
        let most = left.as_nanos() as u64 + 20_000;
        let passes = Duration::from_nanos(self.numbers.u64(1000..=most));
        self.clock.sleep(passes);
        if self.fails(self.rates.stall) {
            return self.mark(Mark::Stalled);
        }
        for _ in 0..self.numbers.u8(1..=3) {
            self.tick();
        }
        self.give_out(agent, events);
    }

    fn try_close(&mut self, agent: usize) -> Result<()> {
        if self.fails(self.rates.close) {
            self.mark(Mark::CloseHeld);
            return Err(World::error(Status::Timeout));
        }
        if self.ops.iter().any(|op| op.agent == agent) {
            self.object("close while transfers touch memory");
        }
        self.agents[agent].life = Life::Closed;
        Ok(())
    }

    /// The facts of a process that is gone interest nobody.
    fn note(&mut self, agent: usize, fact: Fact) {
        if self.agents[agent].life != Life::Killed {
            self.facts.push(fact);
        }
    }

    fn is_dead(&self, agent: usize) -> bool {
        self.agents[agent].life == Life::Killed
    }
}

impl Backend for Simulated {
    fn kind(&self) -> Kind {
        Kind::Local
    }

    fn metadata(&self) -> &[u8] {
        &self.metadata
    }

    fn agent_name(&self, metadata: &[u8]) -> Result<String> {
        let world = &mut *self.world.lock();
        world.check_call(self.agent, "agent_name");
        let mut named = agent_of(world, metadata).map(|agent| world.agents[agent].name.to_string());
        if world.fails(world.rates.name) {
            named = Err(World::error(Status::InvalidArg));
        }
        if let Err(error) = &named {
            world.mark(Mark::NameRefused);
            world.note(self.agent, Fact::NameRefused(error.status));
        }
        named
    }

    fn connect(
        &mut self,
        conn: ConnId,
        metadata: &[u8],
        remote: &Layout,
        replaces: Option<ConnId>,
    ) -> Result<()> {
        let world = &mut *self.world.lock();
        world.check_call(self.agent, "connect");
        let replaces = replaces.map(|old| old.0);
        let result = world.connect(self.agent, conn.0, metadata, remote, replaces);
        world.note(
            self.agent,
            match &result {
                Ok(()) => Fact::Connected {
                    conn: conn.0,
                    replaces,
                },
                Err(error) => Fact::ConnectFailed(error.status),
            },
        );
        result
    }

    fn disconnect(&mut self, conn: ConnId) {
        let world = &mut *self.world.lock();
        if !world.is_dead(self.agent) {
            world.check_call(self.agent, "disconnect");
            world.disconnect(self.agent, conn.0);
            world.note(self.agent, Fact::Disconnected(conn.0));
        }
    }

    fn start(&mut self, conn: ConnId, op: OpId, _: Direction, runs: &mut Runs) -> Result<Start> {
        let world = &mut *self.world.lock();
        world.check_call(self.agent, "start");
        let started = world.start(self.agent, conn.0, op.0, runs);
        world.note(
            self.agent,
            match &started {
                Ok(started) => Fact::Started {
                    op: op.0,
                    conn: conn.0,
                    done: *started == Start::Done,
                },
                Err(error) => Fact::StartFailed(conn.0, error.status),
            },
        );
        started
    }

    fn stop(&mut self, op: OpId) -> Stop {
        let world = &mut *self.world.lock();
        if world.is_dead(self.agent) {
            return Stop::Stopped;
        }
        world.check_call(self.agent, "stop");
        let answer = world.stop(self.agent, op.0);
        world.note(self.agent, Fact::Stop(op.0, answer));
        answer
    }

    fn send(&mut self, conn: ConnId, message: &[u8]) -> Result<()> {
        let world = &mut *self.world.lock();
        if world.is_dead(self.agent) {
            return Ok(());
        }
        world.check_call(self.agent, "send");
        let result = world.send(self.agent, conn.0, message);
        world.note(
            self.agent,
            Fact::Sent {
                conn: conn.0,
                message: message.to_vec(),
                result: status_of(&result),
            },
        );
        result
    }

    fn receive(&mut self, most: usize, messages: &mut Vec<Message>) {
        let world = &mut *self.world.lock();
        world.check_call(self.agent, "receive");
        let come = world.receive(self.agent, most);
        messages.extend(come.iter().cloned());
        world.note(self.agent, Fact::Received(come));
    }

    fn refused_messages(&self) -> u64 {
        self.world.lock().agents[self.agent].refused
    }

    fn progress(&mut self, deadline: Instant, events: &mut Vec<Event>) {
        let world = &mut *self.world.lock();
        if !world.is_dead(self.agent) {
            world.check_call(self.agent, "progress");
            world.note(self.agent, Fact::Progress);
            world.progress(self.agent, deadline, events);
        }
    }

    fn idle_for(&self) -> Option<Duration> {
        let world = &mut *self.world.lock();
        let nap = world.numbers.u64(..1_000_000);
        (nap > 300_000).then(|| Duration::from_nanos(nap))
    }

    fn try_close(&mut self) -> Result<()> {
        let world = &mut *self.world.lock();
        if world.is_dead(self.agent) {
            return Ok(());
        }
        world.check_call(self.agent, "try_close");
        let result = world.try_close(self.agent);
        world.note(self.agent, Fact::Closed(status_of(&result)));
        result
    }

    fn force_close(&mut self) {
        let world = &mut *self.world.lock();
        if world.is_dead(self.agent) {
            return;
        }
        world.check_call(self.agent, "force_close");
        world.mark(Mark::Forced);
        world.note(self.agent, Fact::Forced);
        let before = world.ops.len();
        world.ops.retain(|op| op.agent != self.agent);
        if world.ops.len() < before {
            world.mark(Mark::Leftovers);
        }
        world.agents[self.agent].life = Life::Closed;
    }
}

impl Drop for Simulated {
    fn drop(&mut self) {
        self.world.lock().agents[self.agent].dropped = true;
    }
}
