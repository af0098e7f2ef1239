//! Messages that go with reads: bound to the read until its bytes have arrived, then waiting for room
//! at the peer, in the order in which the reads completed. Pure state.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use crate::backend::ConnId;
use crate::kept::{relax_map, relax_queue};
use crate::ledger::XferId;

/// All messages of one transport that are not on their way yet.
#[derive(Debug, Default)]
pub struct Outgoing {
    messages: FxHashMap<XferId, Bound>,
    /// Reads whose bytes have arrived. One that was forgotten meanwhile is skipped.
    waiting: FxHashMap<ConnId, VecDeque<XferId>>,
    /// Memory for messages and lines to come.
    spare_bytes: Vec<Vec<u8>>,
    spare_lines: Vec<VecDeque<XferId>>,
}

/// Memory for so many messages of so many bytes is kept: 1 MiB at most.
const KEPT_MESSAGES: usize = 1024;
const KEPT_BYTES: usize = 1024;
/// The same for lines.
const KEPT_LINES: usize = 16;

#[derive(Debug)]
struct Bound {
    bytes: Vec<u8>,
    has_arrived: bool,
    was_refused: bool,
}

impl Outgoing {
    /// Keeps the message of a read that has been started.
    pub fn bind(&mut self, id: XferId, message: &[u8]) {
        let mut bytes = self.spare_bytes.pop().unwrap_or_default();
        bytes.extend_from_slice(message);
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
        let spare = &mut self.spare_lines;
        let line = self.waiting.entry(conn);
        let line = line.or_insert_with(|| spare.pop().unwrap_or_default());
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
        if let Some(mut line) = self.waiting.remove(&conn)
            && self.spare_lines.len() < KEPT_LINES
        {
            relax_queue(&mut line);
            self.spare_lines.push(line);
        }
        None
    }

    /// There was no room for the message. True the first time.
    pub fn refused(&mut self, id: XferId) -> bool {
        let bound = self.messages.get_mut(&id);
        bound.is_some_and(|bound| !std::mem::replace(&mut bound.was_refused, true))
    }

    /// The message has gone, or is not to go.
    pub fn forget(&mut self, id: XferId) {
        let Some(Bound { mut bytes, .. }) = self.messages.remove(&id) else {
            return;
        };
        relax_map(&mut self.messages);
        if bytes.capacity() <= KEPT_BYTES && self.spare_bytes.len() < KEPT_MESSAGES {
            bytes.clear();
            self.spare_bytes.push(bytes);
        }
    }

    /// Puts the connections that messages may wait for into a list, in the order in which they were made.
    pub fn conns(&self, conns: &mut Vec<ConnId>) {
        conns.clear();
        conns.extend(self.waiting.keys());
        conns.sort_unstable();
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

    fn conns(outgoing: &Outgoing) -> Vec<ConnId> {
        let mut conns = Vec::new();
        outgoing.conns(&mut conns);
        conns
    }

    #[test]
    fn the_memory_of_a_message_is_used_again_unless_it_is_large() {
        let mut outgoing = Outgoing::default();
        for (id, len) in [(1, KEPT_BYTES), (2, 10), (3, KEPT_BYTES + 1)] {
            let message = vec![id as u8; len];
            outgoing.bind(id, &message);
            outgoing.arrived(id, ConnId(1));
            assert_eq!(outgoing.first(ConnId(1)), Some((id, &message[..])));
            outgoing.forget(id);
            assert_eq!(outgoing.first(ConnId(1)), None);
            let kept: Vec<usize> = outgoing.spare_bytes.iter().map(Vec::capacity).collect();
            let wanted = if id < 3 { vec![KEPT_BYTES] } else { vec![] };
            assert_eq!((kept, outgoing.spare_lines.len()), (wanted, 1));
        }
        for id in 10..10_010 {
            outgoing.bind(id, &[1]);
        }
        for id in 10..10_010 {
            outgoing.forget(id);
        }
        assert_eq!(outgoing.spare_bytes.len(), KEPT_MESSAGES);
    }

    #[test]
    fn what_is_forgotten_behind_one_that_waits_does_not_pile_up() {
        let mut outgoing = Outgoing::default();
        let conn = ConnId(1);
        for id in 1..1000 {
            outgoing.bind(id, &[1]);
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
            outgoing.bind(id.into(), &[id]);
        }
        assert_eq!(outgoing.first(a), None);
        for (id, conn) in [(3, a), (1, b), (2, a), (4, a)] {
            assert!(!outgoing.is_waiting(id));
            assert!(outgoing.arrived(id, conn));
            assert!(outgoing.is_waiting(id));
        }
        assert!(!outgoing.arrived(9, a), "a read without a message");
        assert_eq!(conns(&outgoing), [a, b]);
        assert_eq!(outgoing.first(a), Some((3, &[3][..])));
        assert_eq!(outgoing.first(a), Some((3, &[3][..])), "until it has gone");
        assert!(outgoing.refused(3) && !outgoing.refused(3));
        outgoing.forget(3);
        outgoing.forget(2);
        assert_eq!(outgoing.first(a), Some((4, &[4][..])));
        outgoing.forget(4);
        assert_eq!(outgoing.first(a), None);
        assert_eq!(conns(&outgoing), [b]);
        outgoing.forget(1);
        assert_eq!(outgoing.first(b), None);
        assert!(!outgoing.is_busy());
        assert!(outgoing.messages.is_empty());
    }
}
