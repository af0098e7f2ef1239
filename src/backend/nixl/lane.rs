//! Connections and transfers as the backend keeps them: plain bookkeeping, no engine.

use std::collections::VecDeque;
use std::time::Instant;

use super::coverage::Coverage;
use super::engine::Request;
use super::mail::Outbox;
use super::piece::Speed;
use super::silence::{LONG, Silence};
use crate::backend::{ConnId, Direction, OpId};
use crate::error::{Error, Quoted};
use crate::extents::{Cursor, Piece};
use crate::kept::Line;
use crate::log::log;

/// Limits of what the engine holds for one peer: enough to keep a fast network busy, little enough
/// that a peer that does not answer costs nothing. Over sockets one call of the engine moves all that it
/// holds, if the peer keeps up: this is also how long a poll can take there. There is no limit for all
/// peers together, so that those that do not answer take nothing from the others.
const LANE_BYTES: u64 = 8 << 20;
const LANE_REQUESTS: usize = 64;

/// One registration of one peer, with an endpoint of its own.
pub struct Lane {
    /// The name that the engine knows it by.
    pub alias: String,
    /// The name that the peer gave itself, and the address that tells its incarnations apart.
    pub agent: String,
    /// See `agent`.
    pub address: Vec<u8>,
    /// The memory that the peer's blocks lie in.
    pub remote: Coverage,
    /// False once the transport gave it up; it stays until nothing of it runs.
    pub registered: bool,
    /// Why the peer is gone, if it is.
    pub lost: Option<Error>,
    /// Transfers with pieces to post, see [`Op::queued`].
    pub queue: Line,
    /// What the engine works on, oldest first.
    pub posted: VecDeque<Posted>,
    /// Bytes of it.
    pub posted_bytes: u64,
    /// How quickly posts return.
    pub speed: Speed,
    /// Set while it is unclear whether a failure means that the peer is gone.
    pub doubt: Option<Doubt>,
    /// For how long what is posted has waited for an answer.
    pub silence: Silence,
    /// Waits in the rotation of lanes that have work.
    pub in_rotation: bool,
    /// The messages to the peer.
    pub outbox: Outbox,
}

/// What a request is for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Purpose {
    /// To move a piece of a transfer.
    Piece(OpId),
    /// To settle a [`Doubt`].
    Doubt,
    /// To find out which messages have arrived.
    Mail,
}

/// One request that the engine works on.
pub struct Posted {
    /// The engine's handle.
    pub request: Request,
    /// What it is for.
    pub purpose: Purpose,
    /// The messages that it flushed: see [`Outbox::mark`].
    pub mark: u64,
    /// Its first stretch, which a probe would repeat.
    pub first: Piece,
    /// Its bytes.
    pub bytes: u64,
}

/// A piece failed, and the engine does not say that the peer is gone.
///
/// Either it is gone, or it lives and this transfer alone failed. In the second case an earlier part
/// of the failed piece may still be under way. One byte of the piece, posted again, answers both: it
/// arrives after everything that was posted before it, or it fails as well.
pub struct Doubt {
    /// Failed transfers that wait for the answer.
    pub failed: Vec<OpId>,
    /// What to probe with.
    pub probe: Piece,
    /// Which way.
    pub direction: Direction,
    /// No probe before this.
    pub next: Instant,
    /// Probes that failed.
    pub failures: u32,
    /// A probe is among the posted requests.
    pub probing: bool,
}

/// One transfer.
pub struct Op {
    /// Over which lane.
    pub conn: ConnId,
    /// Which way.
    pub direction: Direction,
    /// What is left to post.
    pub cursor: Cursor,
    /// It waits in the queue of its lane.
    pub queued: bool,
    /// Pieces that the engine works on.
    pub posted: usize,
    /// The first failure: nothing is posted any more.
    pub error: Option<Error>,
    /// The caller has given it up: nothing is posted any more.
    pub stopping: bool,
    /// One of its pieces failed, and a [`Doubt`] is open about it.
    pub doubted: bool,
}

impl Lane {
    /// Keeps a request for `pieces` until it has ended.
    pub fn keep(&mut self, request: Request, purpose: Purpose, pieces: &[Piece]) {
        let bytes = pieces.iter().map(|piece| piece.len).sum();
        if self.posted.is_empty() {
            self.silence.ends();
        }
        self.posted_bytes += bytes;
        self.posted.push_back(Posted {
            request,
            purpose,
            mark: self.outbox.mark(),
            first: pieces[0],
            bytes,
        });
    }

    /// How many bytes the engine may get beside what it has.
    pub fn room(&self) -> u64 {
        match self.posted.len() < LANE_REQUESTS {
            true => LANE_BYTES.saturating_sub(self.posted_bytes),
            false => 0,
        }
    }

    /// Tells the log, once, when what is posted waits for long.
    pub fn warn_of_silence(&mut self, now: Instant) {
        if self.registered && !self.posted.is_empty() && self.silence.goes_on(now) {
            log!(
                Warn,
                "the NIXL agent {} has answered nothing for {} s: either it does not call the library (over sockets \
                 a target has to call dt_poll or dt_wait regularly, or to set progress_thread), or its process \
                 stands still, or it cannot be reached",
                Quoted(&self.agent),
                LONG.as_secs()
            );
        }
    }

    /// Nothing more of `op` is to be posted.
    pub fn dequeue(&mut self, op: &mut Op) {
        if std::mem::take(&mut op.queued) {
            self.queue.leave();
        }
    }

    /// A request has ended that was posted after all messages so far, over the same endpoint if
    /// `one_endpoint`.
    pub fn prove_if(&mut self, one_endpoint: bool) {
        if one_endpoint {
            self.outbox.prove(self.outbox.mark());
        }
    }

    /// Nothing of it can touch memory, and nothing is to be found out.
    pub fn is_quiet(&self) -> bool {
        self.posted.is_empty() && self.doubt.is_none()
    }

    /// Something is left to do.
    pub fn is_busy(&self) -> bool {
        !self.is_quiet() || !self.queue.is_empty() || self.outbox.is_owed()
    }
}

impl Op {
    /// Its last piece has ended, and nothing is unclear.
    pub fn has_ended(&self) -> bool {
        let posts_more = self.error.is_none() && !self.stopping && !self.cursor.is_done();
        self.posted == 0 && !self.doubted && !posts_more
    }
}
