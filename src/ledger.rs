//! The life of every transfer id, as a pure state machine: no I/O, no clock, no memory addresses.
//!
//! ```text
//!             open
//!               │
//!               ▼          end                     take
//!            Running ────────────────▶ Ended ───────────────▶ reported, gone
//!             │   │                      │
//!             │   │ forget_draining      │ forget_ended
//!   forget_   │   ▼                      ▼
//!   stopped   │  Draining ──▶ gone      gone
//!             ▼      end
//!            gone
//! ```
//!
//! Only `take` reports, and it removes what it reports: an id surfaces once or never. `end` is told
//! only of transfers that touch no memory any more, and a recorded outcome is never replaced.

use std::collections::{BTreeMap, HashMap};

use crate::backend::{ConnId, Direction};
use crate::error::Status;
use crate::peers::PeerKey;

/// Id of a transfer as callers see it; never 0, never reused.
pub type XferId = u64;

/// How a transfer ended.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Completion {
    /// Which one.
    pub id: XferId,
    /// As given at submission.
    pub user_data: u64,
    /// Bytes moved; 0 unless it succeeded.
    pub bytes: u64,
    /// Success, or the reason of the failure.
    pub result: Result<(), Status>,
}

/// What is known of a transfer when it starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Terms {
    /// The peer id under which it surfaces.
    pub peer: PeerKey,
    /// The registration that it uses.
    pub conn: ConnId,
    /// Which way.
    pub direction: Direction,
    /// Bytes to move.
    pub bytes: u64,
    /// The caller's own.
    pub user_data: u64,
}

/// Counters since the start, `submitted == done + failed + cancelled + inflight`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Counts {
    /// Ids given out.
    pub submitted: u64,
    /// Ended well.
    pub done: u64,
    /// Ended otherwise, cancellation apart.
    pub failed: u64,
    /// Ended as `Cancelled`, or dropped by the caller before they ended.
    pub cancelled: u64,
    /// Not ended yet.
    pub inflight: u64,
    /// A part of `cancelled`: can still touch memory.
    pub draining: u64,
    /// Bytes of writes that ended well.
    pub bytes_written: u64,
    /// Bytes of reads that ended well.
    pub bytes_read: u64,
}

/// Where an id stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Standing {
    /// Never given out, reported, or forgotten.
    Unknown,
    /// The backend works on it.
    Running,
    /// Its outcome waits to be reported.
    Ended,
}

#[derive(Debug)]
struct Entry {
    terms: Terms,
    state: State,
}

#[derive(Debug)]
enum State {
    /// `condemned`: its peer was removed while it ran, so it will be reported as cancelled.
    Running { condemned: bool },
    /// `seq` is its place among all that ended.
    Ended {
        result: Result<(), Status>,
        seq: u64,
    },
}

/// All transfers of one transport.
#[derive(Debug, Default)]
pub struct Ledger {
    last_id: XferId,
    last_seq: u64,
    entries: HashMap<XferId, Entry>,
    /// Dropped by the caller, but the backend may still touch memory for them.
    draining: HashMap<XferId, ConnId>,
    /// What waits to be reported, in the order in which it ended: of all peers, and peer by peer.
    ready: BTreeMap<u64, XferId>,
    ready_by_peer: BTreeMap<(PeerKey, u64), XferId>,
    /// How many entries each peer id has; none is not stored.
    uses: HashMap<PeerKey, u64>,
    counts: Counts,
}

impl Ledger {
    /// The id that the next [`open`](Self::open) will give out.
    pub fn next_id(&self) -> XferId {
        self.last_id + 1
    }

    /// Enters a transfer that the backend has started under [`next_id`](Self::next_id).
    pub fn open(&mut self, terms: Terms) -> XferId {
        self.last_id += 1;
        self.entries.insert(
            self.last_id,
            Entry {
                terms,
                state: State::Running { condemned: false },
            },
        );
        *self.uses.entry(terms.peer).or_default() += 1;
        self.counts.submitted += 1;
        self.counts.inflight += 1;
        self.last_id
    }

    /// Where `id` stands.
    pub fn standing(&self, id: XferId) -> Standing {
        match self.entries.get(&id).map(|entry| &entry.state) {
            None => Standing::Unknown,
            Some(State::Running { .. }) => Standing::Running,
            Some(State::Ended { .. }) => Standing::Ended,
        }
    }

    /// The transfer touches no memory any more. Says which registration it used; `None` if its end
    /// was known before.
    pub fn end(&mut self, id: XferId, result: Result<(), Status>) -> Option<ConnId> {
        if let Some(conn) = self.draining.remove(&id) {
            self.counts.draining -= 1;
            return Some(conn);
        }
        let entry = self.entries.get_mut(&id)?;
        let State::Running { condemned } = entry.state else {
            return None;
        };
        let outcome = if condemned {
            Err(Status::Cancelled)
        } else {
            result
        };
        self.last_seq += 1;
        entry.state = State::Ended {
            result: outcome,
            seq: self.last_seq,
        };
        let terms = entry.terms;
        self.ready.insert(self.last_seq, id);
        self.ready_by_peer.insert((terms.peer, self.last_seq), id);
        self.counts.inflight -= 1;
        match (outcome, terms.direction) {
            (Ok(()), direction) => {
                self.counts.done += 1;
                match direction {
                    Direction::Write => self.counts.bytes_written += terms.bytes,
                    Direction::Read => self.counts.bytes_read += terms.bytes,
                }
            }
            (Err(Status::Cancelled), _) => self.counts.cancelled += 1,
            (Err(_), _) => self.counts.failed += 1,
        }
        Some(terms.conn)
    }

    /// The peer of a running transfer was removed: however it ends, it is reported as cancelled.
    pub fn condemn(&mut self, id: XferId) {
        if let Some(Entry {
            state: State::Running { condemned },
            ..
        }) = self.entries.get_mut(&id)
        {
            *condemned = true;
        }
    }

    /// Drops an ended transfer unreported; its outcome stays counted. Says whose it was.
    pub fn forget_ended(&mut self, id: XferId) -> Option<PeerKey> {
        (self.standing(id) == Standing::Ended)
            .then(|| self.remove(id))?
            .map(|terms| terms.peer)
    }

    /// Drops a running transfer that the backend has stopped. Says whose it was.
    pub fn forget_stopped(&mut self, id: XferId) -> Option<PeerKey> {
        self.drop_running(id).map(|terms| terms.peer)
    }

    /// Drops a running transfer that the backend cannot stop: it drains until [`end`](Self::end).
    /// Says whose it was.
    pub fn forget_draining(&mut self, id: XferId) -> Option<PeerKey> {
        let terms = self.drop_running(id)?;
        self.draining.insert(id, terms.conn);
        self.counts.draining += 1;
        Some(terms.peer)
    }

    /// Reports the transfer that has waited longest: of `peer`, or of all.
    pub fn take(&mut self, peer: Option<PeerKey>) -> Option<(PeerKey, Completion)> {
        let id = match peer {
            None => *self.ready.first_key_value()?.1,
            Some(key) => {
                *self
                    .ready_by_peer
                    .range((key, 0)..=(key, u64::MAX))
                    .next()?
                    .1
            }
        };
        let State::Ended { result, .. } = self.entries.get(&id)?.state else {
            unreachable!("only ended transfers are ready");
        };
        let terms = self.remove(id)?;
        let bytes = if result.is_ok() { terms.bytes } else { 0 };
        Some((
            terms.peer,
            Completion {
                id,
                user_data: terms.user_data,
                bytes,
                result,
            },
        ))
    }

    /// True when [`take`](Self::take) has something.
    pub fn has_ready(&self, peer: Option<PeerKey>) -> bool {
        match peer {
            None => !self.ready.is_empty(),
            Some(key) => self
                .ready_by_peer
                .range((key, 0)..=(key, u64::MAX))
                .next()
                .is_some(),
        }
    }

    /// True while an id of `peer` can still surface.
    pub fn uses(&self, peer: PeerKey) -> bool {
        self.uses.contains_key(&peer)
    }

    /// What runs over `conn`, or over any.
    pub fn running(&self, conn: Option<ConnId>) -> Vec<XferId> {
        let over = |entry: &Entry| conn.is_none_or(|conn| entry.terms.conn == conn);
        let mut ids: Vec<XferId> = self
            .entries
            .iter()
            .filter(|(_, entry)| matches!(entry.state, State::Running { .. }) && over(entry))
            .map(|(id, _)| *id)
            .collect();
        // Whoever asks deals with the oldest first, whatever the hash says.
        ids.sort_unstable();
        ids
    }

    /// Drops what waits to be reported: the transport closes.
    pub fn forget_ready(&mut self) {
        while let Some((_, id)) = self.ready.first_key_value() {
            let id = *id;
            self.remove(id);
        }
    }

    /// The counters.
    pub fn counts(&self) -> Counts {
        self.counts
    }

    fn drop_running(&mut self, id: XferId) -> Option<Terms> {
        let terms = (self.standing(id) == Standing::Running).then(|| self.remove(id))??;
        self.counts.inflight -= 1;
        self.counts.cancelled += 1;
        Some(terms)
    }

    fn remove(&mut self, id: XferId) -> Option<Terms> {
        let entry = self.entries.remove(&id)?;
        if let State::Ended { seq, .. } = entry.state {
            self.ready.remove(&seq);
            self.ready_by_peer.remove(&(entry.terms.peer, seq));
        }
        if let Some(uses) = self.uses.get_mut(&entry.terms.peer) {
            *uses -= 1;
            if *uses == 0 {
                self.uses.remove(&entry.terms.peer);
            }
        }
        Some(entry.terms)
    }
}

#[cfg(test)]
mod tests;
