//! What waits: transfers, each behind its predecessors to the same peer, and news to be told. Pure
//! state; every operation costs at most the logarithm of what is queued.

use std::collections::{BTreeMap, VecDeque};

use rustc_hash::FxHashMap;

use crate::backend::{ConnId, Direction, Event, OpId};
use crate::error::{Error, Result};
use crate::extents::Cursor;

/// A transfer that is not finished.
#[derive(Debug)]
pub(super) struct Transfer {
    /// Its id.
    pub(super) op: OpId,
    /// Which way it goes.
    pub(super) direction: Direction,
    /// What is left of it.
    pub(super) cursor: Cursor,
}

/// Where an id is found. Sequence numbers order transfers as well as events.
#[derive(Clone, Copy)]
enum Place {
    Waiting(ConnId, u64),
    Ended(u64),
}

/// All transfers and all news of one transport.
#[derive(Default)]
pub(super) struct Queue {
    next: u64,
    places: FxHashMap<OpId, Place>,
    /// The transfers of each connection, first come, first served. A lane exists as long as its
    /// connection is in `turns`, or has its turn.
    lanes: FxHashMap<ConnId, BTreeMap<u64, Transfer>>,
    /// Whose turn is next.
    turns: VecDeque<ConnId>,
    waiting: usize,
    events: BTreeMap<u64, Event>,
}

impl Queue {
    fn number(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    /// Appends a transfer to those of its connection.
    pub(super) fn push(&mut self, conn: ConnId, transfer: Transfer) {
        let number = self.number();
        self.places
            .insert(transfer.op, Place::Waiting(conn, number));
        self.waiting += 1;
        let turns = &mut self.turns;
        let lane = self.lanes.entry(conn).or_insert_with(|| {
            turns.push_back(conn);
            BTreeMap::new()
        });
        lane.insert(number, transfer);
    }

    /// True when transfers of this connection wait.
    pub(super) fn has_work_for(&self, conn: ConnId) -> bool {
        self.lanes.get(&conn).is_some_and(|lane| !lane.is_empty())
    }

    /// True when nothing waits, neither transfers nor news.
    pub(super) fn is_idle(&self) -> bool {
        self.waiting == 0 && self.events.is_empty()
    }

    /// Takes the connection whose turn it is; [`end_turn`](Queue::end_turn) puts it back.
    pub(super) fn begin_turn(&mut self) -> Option<ConnId> {
        while let Some(conn) = self.turns.pop_front() {
            if self.has_work_for(conn) {
                return Some(conn);
            }
            self.lanes.remove(&conn);
        }
        None
    }

    /// The oldest transfer of a connection.
    pub(super) fn front(&mut self, conn: ConnId) -> Option<&mut Transfer> {
        Some(self.lanes.get_mut(&conn)?.first_entry()?.into_mut())
    }

    /// The oldest transfer of a connection has ended.
    pub(super) fn end_front(&mut self, conn: ConnId, result: Result<()>) {
        let front = self.lanes.get_mut(&conn).and_then(BTreeMap::pop_first);
        if let Some((_, transfer)) = front {
            self.waiting -= 1;
            self.ended(transfer.op, result);
        }
    }

    /// The connection has had its turn and goes behind the others.
    pub(super) fn end_turn(&mut self, conn: ConnId) {
        if self.has_work_for(conn) {
            self.turns.push_back(conn);
        } else {
            self.lanes.remove(&conn);
        }
    }

    /// Remembers that a transfer has ended.
    pub(super) fn ended(&mut self, op: OpId, result: Result<()>) {
        let number = self.number();
        self.places.insert(op, Place::Ended(number));
        self.events.insert(number, Event::Ended { op, result });
    }

    /// The peer is lost: its transfers end with `error`.
    pub(super) fn lost(&mut self, conn: ConnId, error: &Error) {
        for transfer in self.forget(conn) {
            self.ended(transfer.op, Err(error.clone()));
        }
        let number = self.number();
        self.events.insert(
            number,
            Event::Lost {
                conn,
                error: error.clone(),
            },
        );
    }

    /// Drops a transfer, or the news of its end.
    pub(super) fn stop(&mut self, op: OpId) {
        match self.places.remove(&op) {
            Some(Place::Waiting(conn, number)) => {
                self.lanes
                    .get_mut(&conn)
                    .and_then(|lane| lane.remove(&number));
                self.waiting -= 1;
            }
            Some(Place::Ended(number)) => {
                self.events.remove(&number);
            }
            None => {}
        }
    }

    /// Drops all transfers of a connection that have not ended.
    pub(super) fn forget(&mut self, conn: ConnId) -> Vec<Transfer> {
        let Some(lane) = self.lanes.remove(&conn) else {
            return Vec::new();
        };
        self.turns.retain(|other| *other != conn);
        self.waiting -= lane.len();
        let transfers: Vec<Transfer> = lane.into_values().collect();
        for transfer in &transfers {
            self.places.remove(&transfer.op);
        }
        transfers
    }

    /// Hands out all news, oldest first.
    pub(super) fn take_events(&mut self, events: &mut Vec<Event>) {
        for (_, event) in std::mem::take(&mut self.events) {
            if let Event::Ended { op, .. } = &event {
                self.places.remove(op);
            }
            events.push(event);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;
    use crate::extents::Runs;
    use crate::region::Region;
    use proptest::prelude::*;

    fn transfer(op: u64) -> Transfer {
        let region = Region::new(4096, 1, 1).unwrap();
        let runs = Runs::merge(&[0], &[0], &region, &region.into()).unwrap();
        Transfer {
            op: OpId(op),
            direction: Direction::Write,
            cursor: Cursor::new(runs),
        }
    }

    /// Ends the front transfer of whoever has the turn.
    fn turn(queue: &mut Queue) -> Option<(u64, u64)> {
        let conn = queue.begin_turn()?;
        let op = queue.front(conn).unwrap().op;
        queue.end_front(conn, Ok(()));
        queue.end_turn(conn);
        Some((conn.0, op.0))
    }

    fn events(queue: &mut Queue) -> Vec<Event> {
        let mut events = Vec::new();
        queue.take_events(&mut events);
        events
    }

    #[test]
    fn connections_take_turns_and_keep_their_order() {
        let mut queue = Queue::default();
        for op in 1..=3 {
            queue.push(ConnId(1), transfer(op));
        }
        queue.push(ConnId(2), transfer(4));
        queue.push(ConnId(3), transfer(5));
        let order: Vec<_> = std::iter::from_fn(|| turn(&mut queue)).collect();
        assert_eq!(order, [(1, 1), (2, 4), (3, 5), (1, 2), (1, 3)]);
        assert!(!queue.is_idle(), "the events wait");
        let ops: Vec<u64> = events(&mut queue)
            .into_iter()
            .map(|event| match event {
                Event::Ended { op, result: Ok(()) } => op.0,
                other => panic!("{other:?}"),
            })
            .collect();
        assert_eq!(ops, [1, 4, 5, 2, 3]);
        assert!(queue.is_idle());
    }

    #[test]
    fn a_lost_connection_ends_what_waits_and_nothing_else() {
        let mut queue = Queue::default();
        queue.push(ConnId(1), transfer(1));
        queue.push(ConnId(2), transfer(2));
        queue.push(ConnId(1), transfer(3));
        let error = Error::new(Status::PeerLost, "gone");
        queue.lost(ConnId(1), &error);
        let ended = |op| Event::Ended {
            op: OpId(op),
            result: Err(error.clone()),
        };
        let lost = Event::Lost {
            conn: ConnId(1),
            error: error.clone(),
        };
        assert_eq!(events(&mut queue), [ended(1), ended(3), lost]);
        assert_eq!(turn(&mut queue), Some((2, 2)));
        assert_eq!(turn(&mut queue), None);
    }

    proptest! {
        // Each op ends once or is stopped, whatever happens in whatever order, and nothing of the
        // past stays behind.
        #[test]
        fn exactly_once(steps in prop::collection::vec((0u8..6, 0u64..4, any::<prop::sample::Index>()), 0..300)) {
            let mut queue = Queue::default();
            let mut open: Vec<u64> = Vec::new();
            let mut all = 0;
            let settle = |queue: &mut Queue, open: &mut Vec<u64>| {
                for event in events(queue) {
                    if let Event::Ended { op, .. } = event {
                        let at = open.iter().position(|o| *o == op.0);
                        assert!(at.is_some(), "{op:?} ended twice or after stop");
                        open.remove(at.unwrap());
                    }
                }
            };
            for (what, conn, pick) in steps {
                match what {
                    0 | 1 => {
                        all += 1;
                        open.push(all);
                        queue.push(ConnId(conn), transfer(all));
                    }
                    2 => { turn(&mut queue); }
                    3 if !open.is_empty() => {
                        let op = open.remove(pick.index(open.len()));
                        queue.stop(OpId(op));
                    }
                    4 if conn == 0 => queue.lost(ConnId(pick.index(4) as u64), &Error::new(Status::PeerLost, "x")),
                    _ => settle(&mut queue, &mut open),
                }
                prop_assert_eq!(queue.waiting, queue.lanes.values().map(BTreeMap::len).sum::<usize>());
                prop_assert_eq!(queue.turns.len(), queue.lanes.len());
                prop_assert_eq!(queue.places.len(), open.len());
            }
            while turn(&mut queue).is_some() {}
            settle(&mut queue, &mut open);
            prop_assert!(open.is_empty() && queue.is_idle());
            prop_assert!(queue.places.is_empty() && queue.lanes.is_empty() && queue.turns.is_empty());
        }
    }
}
