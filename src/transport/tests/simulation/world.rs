//! The simulated machine: agents with memory, connections between them, transfers that move bytes when
//! they like, and whatever can go wrong with all that. It objects when a transport breaks the contract
//! of [`Backend`](crate::backend::Backend).

use std::sync::Arc;

use fastrand::Rng;

use super::marks::{Mark, Marks};
use super::program::Fuse;
use super::shadow::{Memory, Shadow};
use crate::backend::{Event, Message, Stop};
use crate::clock::Clock;
use crate::error::{Error, Result as BackendResult, Status};
use crate::extents::Cursor;

/// `Err` says what is wrong.
pub(super) type Verdict = Result<(), String>;

/// What a backend answered, or told, in the course of one call of a transport.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) enum Fact {
    NameRefused(Status),
    Connected {
        conn: u64,
        replaces: Option<u64>,
    },
    ConnectFailed(Status),
    Disconnected(u64),
    Started {
        op: u64,
        conn: u64,
        done: bool,
    },
    StartFailed(u64, Status),
    Stop(u64, Stop),
    Progress,
    Ended(u64, Result<(), Status>),
    Lost(u64),
    Sent {
        conn: u64,
        message: Vec<u8>,
        result: Result<(), Status>,
    },
    Received(Vec<Message>),
    Closed(Result<(), Status>),
    Forced,
}

/// How often things go wrong, of 256 times.
#[derive(Clone, Default)]
pub(super) struct Rates {
    pub(super) name: u8,
    pub(super) connect: u8,
    pub(super) start: u8,
    pub(super) inline: u8,
    pub(super) drain: u8,
    pub(super) busy: u8,
    pub(super) send: u8,
    pub(super) fail: u8,
    pub(super) stall: u8,
    pub(super) sluggish: u8,
    pub(super) hold: u8,
    pub(super) reorder: u8,
    pub(super) duplicate: u8,
    pub(super) few: u8,
    pub(super) close: u8,
}

impl Rates {
    /// Some things never go wrong, some often: what is always mixed hides what is not.
    pub(super) fn drawn(numbers: &mut Rng) -> Rates {
        let mut rate = || [0, 0, 0, 10, 40, 140, 240][numbers.usize(..7)];
        Rates {
            name: rate() / 2,
            connect: rate() / 2,
            start: rate() / 2,
            inline: rate(),
            drain: rate(),
            busy: rate(),
            send: rate() / 4,
            fail: rate(),
            stall: rate(),
            sluggish: rate(),
            hold: rate(),
            reorder: rate(),
            duplicate: rate(),
            few: rate(),
            close: rate(),
        }
    }

    /// Only what is no fault: when transfers go on, and in which order.
    pub(super) fn pace(numbers: &mut Rng) -> Rates {
        let all = Rates::drawn(numbers);
        Rates {
            inline: all.inline,
            sluggish: all.sluggish,
            reorder: all.reorder,
            ..Rates::default()
        }
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    Up,
    Closed,
    Killed,
}

/// One transport that was made, from the backend's side.
pub(super) struct Agent {
    pub(super) name: Arc<str>,
    pub(super) base: u64,
    pub(super) blocks: usize,
    pub(super) block_len: usize,
    pub(super) life: Life,
    pub(super) conns: Vec<Conn>,
    /// Connections that were given up and may be told to be lost.
    pub(super) ghosts: Vec<Conn>,
    pub(super) last_conn: u64,
    /// The connection that must be given up next.
    pub(super) owed: Option<u64>,
    pub(super) pending: Vec<Pending>,
    /// Transfers that the backend is done with.
    pub(super) over: Vec<u64>,
    pub(super) inbox: Vec<Message>,
    pub(super) refused: u64,
    pub(super) dropped: bool,
}

#[derive(Clone)]
pub(super) struct Conn {
    pub(super) id: u64,
    pub(super) target: usize,
    /// Where the peer's blocks begin in the memory of the target.
    pub(super) offset: usize,
    pub(super) broken: bool,
    pub(super) told: bool,
}

/// News that were not given out yet.
pub(super) struct Pending {
    pub(super) event: Event,
    /// Of a transfer: over which connection it went, and whether it was to stop.
    pub(super) conn: u64,
    pub(super) asked: bool,
}

impl Pending {
    pub(super) fn ends(&self, id: u64) -> bool {
        matches!(&self.event, Event::Ended { op, .. } if op.0 == id)
    }
}

/// A transfer that can touch memory.
pub(super) struct Op {
    pub(super) agent: usize,
    pub(super) id: u64,
    pub(super) conn: u64,
    pub(super) target: usize,
    pub(super) offset: usize,
    pub(super) cursor: Cursor,
    pub(super) claim: usize,
    pub(super) moved: usize,
    pub(super) asked: bool,
    /// Pieces until it fails.
    pub(super) fails_after: Option<u8>,
}

/// All of it.
pub(super) struct World {
    pub(super) numbers: Rng,
    pub(super) clock: Clock,
    pub(super) rates: Rates,
    pub(super) fuse: Option<Fuse>,
    pub(super) inner_calls: u64,
    /// Nothing goes wrong any more, and everything comes to its end.
    pub(super) calm: bool,
    pub(super) agents: Vec<Agent>,
    pub(super) memories: Vec<Memory>,
    pub(super) shadow: Shadow,
    pub(super) ops: Vec<Op>,
    pub(super) facts: Vec<Fact>,
    /// The claim of the transfer that is being submitted.
    pub(super) submitted: Option<usize>,
    /// The first breach of the contract.
    pub(super) breach: Option<String>,
    pub(super) marks: Marks,
}

/// So many messages an agent keeps for its transport.
const INBOX: usize = 6;

impl World {
    pub(super) fn new(clock: Clock, rates: Rates, fuse: Option<Fuse>) -> World {
        World {
            numbers: Rng::with_seed(0),
            clock,
            rates,
            fuse,
            inner_calls: 0,
            calm: false,
            agents: Vec::new(),
            memories: Vec::new(),
            shadow: Shadow::default(),
            ops: Vec::new(),
            facts: Vec::new(),
            submitted: None,
            breach: None,
            marks: Marks::default(),
        }
    }

    pub(super) fn add_agent(
        &mut self,
        name: &'static str,
        base: u64,
        (blocks, block_len): (usize, usize),
    ) -> usize {
        let agent = self.agents.len();
        self.memories
            .push(Memory::new(blocks * block_len, agent as u8));
        self.agents.push(Agent {
            name: name.into(),
            base,
            blocks,
            block_len,
            life: Life::Up,
            conns: Vec::new(),
            ghosts: Vec::new(),
            last_conn: 0,
            owed: None,
            pending: Vec::new(),
            over: Vec::new(),
            inbox: Vec::new(),
            refused: 0,
            dropped: false,
        });
        agent
    }

    pub(super) fn object(&mut self, what: impl Into<String>) {
        self.breach.get_or_insert(what.into());
    }

    pub(super) fn mark(&mut self, mark: Mark) {
        self.marks.count(mark);
    }

    pub(super) fn chance(&mut self, rate: u8) -> bool {
        !self.calm && rate > 0 && self.numbers.u8(..) < rate
    }

    /// Whether this inner call fails.
    pub(super) fn fails(&mut self, rate: u8) -> bool {
        self.inner_calls += 1;
        match self.fuse.filter(|_| !self.calm) {
            None => self.chance(rate),
            Some(fuse) => {
                let burns =
                    self.inner_calls == fuse.at || fuse.onward && self.inner_calls > fuse.at;
                if burns {
                    self.mark(if fuse.onward {
                        Mark::Exhausted
                    } else {
                        Mark::FailedOnce
                    });
                }
                burns
            }
        }
    }

    pub(super) fn any_of(&mut self, statuses: &[Status]) -> Status {
        statuses[self.numbers.usize(..statuses.len())]
    }

    /// Why a transfer fails; only now and then decisive, for that is the end of a connection.
    pub(super) fn some_failure(&mut self) -> Status {
        let usual = [Status::Backend, Status::NoMemory, Status::Busy];
        match self.numbers.u8(..6) {
            0 => Status::PeerLost,
            _ => self.any_of(&usual),
        }
    }

    pub(super) fn error(status: Status) -> Error {
        Error::new(status, "simulated")
    }

    pub(super) fn conn(&self, agent: usize, id: u64) -> Option<&Conn> {
        self.agents[agent].conns.iter().find(|conn| conn.id == id)
    }

    pub(super) fn is_gone(&self, conn: &Conn) -> bool {
        conn.broken || self.agents[conn.target].life != Life::Up
    }

    /// Whether the peer of a transfer is gone.
    pub(super) fn is_lost(&self, op: &Op) -> bool {
        match self.conn(op.agent, op.conn) {
            Some(conn) => self.is_gone(conn),
            None => self.agents[op.target].life != Life::Up,
        }
    }

    /// What can touch memory for an agent, or has ended with its news not out yet.
    pub(super) fn is_known(&self, agent: usize, id: u64) -> bool {
        let pending = &self.agents[agent].pending;
        self.is_live(agent, id) || pending.iter().any(|pending| pending.ends(id))
    }

    /// What can touch memory for an agent.
    pub(super) fn is_live(&self, agent: usize, id: u64) -> bool {
        let mut ops = self.ops.iter();
        ops.any(|op| op.agent == agent && op.id == id)
    }

    /// An agent's process is gone: nothing of it goes on, and nobody has to be told.
    pub(super) fn kill(&mut self, agent: usize) {
        self.ops.retain(|op| op.agent != agent);
        let dead = &mut self.agents[agent];
        dead.life = Life::Killed;
        dead.conns.clear();
        dead.inbox.clear();
        dead.pending.clear();
        self.shadow.release_all_of(agent, &mut self.memories);
    }

    /// Somebody's message for an agent. False if there is no room.
    pub(super) fn deliver(&mut self, agent: usize, sender: Arc<str>, bytes: &[u8]) -> bool {
        let to = &mut self.agents[agent];
        if to.inbox.len() >= INBOX && !self.calm {
            return false;
        }
        let bytes = bytes.to_vec();
        to.inbox.push(Message { sender, bytes });
        true
    }
}

/// What is expected of what came.
pub(super) fn status_of(result: &BackendResult<()>) -> Result<(), Status> {
    result.as_ref().copied().map_err(|error| error.status)
}
