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
//!
//! A transfer that is *held* by a handle takes the same way, but `take` passes it over: it stays in
//! `Ended` until it is forgotten.

use rustc_hash::FxHashMap;

use crate::backend::{ConnId, Direction};
use crate::error::Status;
use crate::kept::{Line, relax_map};
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
    /// It belongs to a handle: it is asked for, never reported, and stays until it is released.
    pub held: bool,
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
    /// Its outcome waits to be reported.
    Ended { result: Result<(), Status> },
}

impl Entry {
    fn outcome(&self) -> Option<Result<(), Status>> {
        match self.state {
            State::Running { .. } => None,
            State::Ended { result } => Some(result),
        }
    }
}

/// What one peer id has.
#[derive(Debug, Default)]
struct Account {
    /// Entries under this id.
    uses: u64,
    /// Those of them that wait to be reported.
    line: Line,
}

/// All transfers of one transport.
#[derive(Debug, Default)]
pub struct Ledger {
    last_id: XferId,
    entries: FxHashMap<XferId, Entry>,
    /// Dropped by the caller, but the backend may still touch memory for them.
    draining: FxHashMap<XferId, ConnId>,
    /// What waits to be reported, in the order in which it ended. Each waits here and in the line of its
    /// peer.
    line: Line,
    accounts: FxHashMap<PeerKey, Account>,
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
        self.accounts.entry(terms.peer).or_default().uses += 1;
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

    /// The outcome of a held transfer, `None` inside while it runs; `None` for any other id.
    pub fn held(&self, id: XferId) -> Option<Option<Result<(), Status>>> {
        let entry = self.entries.get(&id).filter(|entry| entry.terms.held)?;
        Some(entry.outcome())
    }

    /// The registration that a running transfer uses.
    pub fn conn(&self, id: XferId) -> Option<ConnId> {
        let entry = self.entries.get(&id)?;
        matches!(entry.state, State::Running { .. }).then_some(entry.terms.conn)
    }

    /// The transfer touches no memory any more. Says which registration it used; `None` if its end
    /// was known before.
    pub fn end(&mut self, id: XferId, result: Result<(), Status>) -> Option<ConnId> {
        if let Some(conn) = self.draining.remove(&id) {
            relax_map(&mut self.draining);
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
        entry.state = State::Ended { result: outcome };
        let terms = entry.terms;
        if !terms.held {
            let waits = |id| self.entries.contains_key(&id);
            self.line.push(id, waits);
            let account = self.accounts.get_mut(&terms.peer);
            let account = account.expect("an entry has an account");
            account.line.push(id, waits);
        }
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
        let line = match peer {
            None => &mut self.line,
            Some(key) => &mut self.accounts.get_mut(&key)?.line,
        };
        let id = line.first(|id| self.entries.contains_key(&id))?;
        let result = self.entries.get(&id)?.outcome();
        let result = result.expect("what waits in a line has ended");
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
        let line = match peer {
            None => Some(&self.line),
            Some(key) => self.accounts.get(&key).map(|account| &account.line),
        };
        line.is_some_and(|line| !line.is_empty())
    }

    /// True while an id of `peer` can still surface.
    pub fn uses(&self, peer: PeerKey) -> bool {
        self.accounts
            .get(&peer)
            .is_some_and(|account| account.uses > 0)
    }

    /// Forgets a peer id that has no transfers and will get none.
    pub fn close_account(&mut self, peer: PeerKey) {
        self.accounts.remove(&peer);
    }

    /// What runs over `conn`, or over any.
    pub fn running(&self, conn: Option<ConnId>) -> Vec<XferId> {
        if self.counts.inflight == 0 {
            return Vec::new();
        }
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
        while let Some(id) = self.line.first(|id| self.entries.contains_key(&id)) {
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
        relax_map(&mut self.entries);
        let account = self.accounts.get_mut(&entry.terms.peer);
        let account = account.expect("an entry has an account");
        account.uses -= 1;
        if matches!(entry.state, State::Ended { .. }) && !entry.terms.held {
            self.line.leave();
            account.line.leave();
        }
        Some(entry.terms)
    }
}

#[cfg(test)]
mod tests;
