//! What the contract says of one transport, given what its backend answered: written from the contract,
//! with nothing of the transport's own code.

use std::collections::VecDeque;

use super::world::{Fact, Pending, Verdict, World};
use crate::backend::{Direction, Event, Message};
use crate::error::Status;
use crate::transport::{Stats, XferId};

pub(super) type Outcome = Result<(), Status>;

/// Fails the run with a sentence, unless something holds.
macro_rules! ensure {
    ($holds:expr, $($text:tt)+) => {
        if !$holds {
            return Err(format!($($text)+));
        }
    };
}
pub(super) use ensure;

/// A registration of a peer.
#[derive(Debug)]
pub(super) struct Peer {
    pub(super) name: &'static str,
    pub(super) conn: u64,
    pub(super) target: usize,
    /// Where each of its blocks begins in the memory of the target.
    pub(super) blocks: Vec<usize>,
    pub(super) failures: u32,
    pub(super) fault: Option<Status>,
}

/// What a registration is to be.
pub(super) struct Addition {
    pub(super) name: &'static str,
    pub(super) target: usize,
    pub(super) blocks: Vec<usize>,
}

/// A transfer that is submitted.
#[derive(Debug)]
pub(super) struct Request {
    pub(super) name: &'static str,
    pub(super) direction: Direction,
    pub(super) local: Vec<u32>,
    pub(super) remote: Vec<u32>,
    pub(super) user_data: u64,
    /// `Some` for a posted read.
    pub(super) message: Option<Vec<u8>>,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Life {
    /// The backend works on it; `removed`: and its peer is known no more.
    Running {
        removed: bool,
    },
    /// A read whose bytes are there, and whose message is not on its way.
    Waiting,
    Ended(Outcome),
    /// The caller knows it no more, the backend does.
    Draining,
    Over,
}

#[derive(Debug)]
pub(super) struct Xfer {
    pub(super) id: XferId,
    pub(super) name: &'static str,
    pub(super) conn: u64,
    pub(super) direction: Direction,
    pub(super) bytes: u64,
    pub(super) user_data: u64,
    pub(super) held: bool,
    pub(super) message: Vec<u8>,
    pub(super) refused: bool,
    pub(super) removed: bool,
    pub(super) claim: usize,
    pub(super) life: Life,
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Phase {
    Open,
    Closing,
    Closed,
}

/// One transport as it must be.
pub(super) struct Model {
    pub(super) agent: usize,
    pub(super) blocks: usize,
    pub(super) block_len: usize,
    pub(super) phase: Phase,
    pub(super) broken: bool,
    pub(super) peers: Vec<Peer>,
    pub(super) xfers: Vec<Xfer>,
    /// What can be reported, in the order in which it ended.
    pub(super) ready: Vec<XferId>,
    /// Reads whose messages wait, in the order in which their bytes came.
    pub(super) waiting: Vec<XferId>,
    /// Messages that the backend has handed over, and the caller has not got.
    pub(super) inbox: VecDeque<Message>,
    pub(super) stats: Stats,
    pub(super) no_room: u64,
    pub(super) nameless: u64,
}

impl Model {
    pub(super) fn new(agent: usize, (blocks, block_len): (usize, usize)) -> Model {
        Model {
            agent,
            blocks,
            block_len,
            phase: Phase::Open,
            broken: false,
            peers: Vec::new(),
            xfers: Vec::new(),
            ready: Vec::new(),
            waiting: Vec::new(),
            inbox: VecDeque::new(),
            stats: Stats::default(),
            no_room: 0,
            nameless: 0,
        }
    }

    /// Why every call is refused, if so.
    pub(super) fn refuses_all(&self) -> Option<Status> {
        match (self.broken, self.phase) {
            (true, _) => Some(Status::Internal),
            (false, Phase::Open) => None,
            (false, _) => Some(Status::Closed),
        }
    }

    pub(super) fn peer(&self, name: &str) -> Option<&Peer> {
        self.peers.iter().find(|peer| peer.name == name)
    }

    pub(super) fn ids(&self) -> impl DoubleEndedIterator<Item = XferId> + '_ {
        self.xfers.iter().map(|xfer| xfer.id)
    }

    /// Whether anything has not ended yet.
    pub(super) fn is_busy(&self) -> bool {
        let over = |xfer: &Xfer| matches!(xfer.life, Life::Ended(_) | Life::Over);
        !self.xfers.iter().all(over)
    }

    /// The handles of posted reads that were not released.
    pub(super) fn handles(&self) -> Vec<XferId> {
        let live = |xfer: &&Xfer| xfer.held && !matches!(xfer.life, Life::Draining | Life::Over);
        self.xfers.iter().filter(live).map(|xfer| xfer.id).collect()
    }

    pub(super) fn has_ready(&self) -> bool {
        !self.ready.is_empty()
    }

    pub(super) fn has_ready_of(&self, scope: Option<&str>) -> bool {
        let name = |id: &XferId| self.xfers[self.find(*id).expect("it was submitted")].name;
        let mut ready = self.ready.iter();
        ready.any(|id| scope.is_none_or(|scope| scope == name(id)))
    }

    pub(super) fn find(&self, id: XferId) -> Option<usize> {
        self.xfers.binary_search_by_key(&id, |xfer| xfer.id).ok()
    }

    /// The counters, and that the backend holds what the transport knows of, and nothing else.
    pub(super) fn check(&mut self, stats: &Stats, world: &World) -> Verdict {
        let agent = &world.agents[self.agent];
        if self.phase != Phase::Closed {
            self.stats.messages.refused = self.no_room + self.nameless + agent.refused;
        }
        self.stats.peers = self.peers.len() as u64;
        ensure!(
            *stats == self.stats,
            "stats are {stats:?}, not {:?}",
            self.stats
        );
        let same = agent.conns.len() == self.peers.len()
            && self
                .peers
                .iter()
                .all(|peer| world.conn(self.agent, peer.conn).is_some());
        ensure!(
            same,
            "the backend has other connections than there are peers"
        );
        let mut known = 0;
        for xfer in &self.xfers {
            let works = matches!(xfer.life, Life::Running { .. } | Life::Draining);
            ensure!(
                works == world.is_known(self.agent, xfer.id),
                "the backend has transfer {}, or has not, but it is {:?}",
                xfer.id,
                xfer.life
            );
            known += usize::from(works);
        }
        let ops = world.ops.iter().filter(|op| op.agent == self.agent).count();
        let is_end = |news: &&Pending| matches!(news.event, Event::Ended { .. });
        let ends = agent.pending.iter().filter(is_end).count();
        ensure!(ops + ends == known, "the backend has unknown transfers");
        Ok(())
    }
}

pub(super) fn nothing_more(facts: &[Fact]) -> Verdict {
    ensure!(facts.is_empty(), "more has happened: {facts:?}");
    Ok(())
}
