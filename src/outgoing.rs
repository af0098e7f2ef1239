//! Messages that go with reads: bound to the read until its bytes have arrived, then waiting for room
//! at the peer, in the order in which the reads completed. Pure state.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use crate::backend::ConnId;
use crate::ledger::XferId;

/// All messages of one transport that are not on their way yet.
#[derive(Debug, Default)]
pub struct Outgoing {
    messages: FxHashMap<XferId, Bound>,
    /// Reads whose bytes have arrived. One that was forgotten meanwhile is skipped.
    waiting: BTreeMap<ConnId, VecDeque<XferId>>,
}

#[derive(Debug)]
struct Bound {
    bytes: Box<[u8]>,
    has_arrived: bool,
    was_refused: bool,
}

impl Outgoing {
    /// Keeps the message of a read that has been started.
    pub fn bind(&mut self, id: XferId, bytes: Box<[u8]>) {
        let bound = Bound {
            bytes,
            has_arrived: false,
            was_refused: false,
        };
        self.messages.insert(id, bound);
    }

    /// The bytes of a read have arrived over `conn`. False if no message goes with it.
    pub fn arrived(&mut self, id: XferId, conn: ConnId) -> bool {
        let Some(bound) = self.messages.get_mut(&id) else {
            return false;
        };
        bound.has_arrived = true;
        let line = self.waiting.entry(conn).or_default();
        line.push_back(id);
        // The first may wait for long, and those behind it be forgotten meanwhile.
        if line.len() > 2 * self.messages.len() + 64 {
            line.retain(|id| self.messages.contains_key(id));
        }
        true
    }

    /// True while the bytes of a read have arrived and its message has not gone.
    pub fn is_waiting(&self, id: XferId) -> bool {
        self.messages
            .get(&id)
            .is_some_and(|bound| bound.has_arrived)
    }

    /// The message that goes next over `conn`, with the read that it belongs to.
    pub fn first(&mut self, conn: ConnId) -> Option<(XferId, &[u8])> {
        let line = self.waiting.get_mut(&conn)?;
        while let Some(id) = line.front() {
            if self.messages.contains_key(id) {
                return Some((*id, &self.messages[id].bytes));
            }
            line.pop_front();
        }
        self.waiting.remove(&conn);
        None
    }

    /// There was no room for the message. True the first time.
    pub fn refused(&mut self, id: XferId) -> bool {
        let bound = self.messages.get_mut(&id);
        bound.is_some_and(|bound| !std::mem::replace(&mut bound.was_refused, true))
    }

    /// The message has gone, or is not to go.
    pub fn forget(&mut self, id: XferId) {
        self.messages.remove(&id);
    }

    /// Connections that messages may wait for.
    pub fn conns(&self) -> Vec<ConnId> {
        self.waiting.keys().copied().collect()
    }

    /// True when nothing is kept, for a read that goes on or at all.
    #[cfg(test)]
    pub fn is_empty(&self) -> bool {
        self.messages.is_empty() && self.waiting.is_empty()
    }

    /// True while a message may wait for anything.
    pub fn is_busy(&self) -> bool {
        !self.waiting.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_forgotten_behind_one_that_waits_does_not_pile_up() {
        let mut outgoing = Outgoing::default();
        let conn = ConnId(1);
        for id in 1..1000 {
            outgoing.bind(id, Box::new([1]));
            outgoing.arrived(id, conn);
            if id > 1 {
                outgoing.forget(id);
            }
        }
        assert!(outgoing.waiting[&conn].len() < 100);
        assert_eq!(outgoing.first(conn), Some((1, &[1][..])));
    }

    #[test]
    fn messages_go_in_the_order_of_arrival() {
        let mut outgoing = Outgoing::default();
        let (a, b) = (ConnId(1), ConnId(2));
        for id in 1..=4u8 {
            outgoing.bind(id.into(), Box::new([id]));
        }
        assert_eq!(outgoing.first(a), None);
        for (id, conn) in [(3, a), (1, b), (2, a), (4, a)] {
            assert!(!outgoing.is_waiting(id));
            assert!(outgoing.arrived(id, conn));
            assert!(outgoing.is_waiting(id));
        }
        assert!(!outgoing.arrived(9, a), "a read without a message");
        assert_eq!(outgoing.conns(), [a, b]);
        assert_eq!(outgoing.first(a), Some((3, &[3][..])));
        assert_eq!(outgoing.first(a), Some((3, &[3][..])), "until it has gone");
        assert!(outgoing.refused(3) && !outgoing.refused(3));
        outgoing.forget(3);
        outgoing.forget(2);
        assert_eq!(outgoing.first(a), Some((4, &[4][..])));
        outgoing.forget(4);
        assert_eq!(outgoing.first(a), None);
        assert_eq!(outgoing.conns(), [b]);
        outgoing.forget(1);
        assert_eq!(outgoing.first(b), None);
        assert!(!outgoing.is_busy());
        assert!(outgoing.messages.is_empty());
    }
}
