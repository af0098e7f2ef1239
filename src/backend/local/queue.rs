//! What waits: transfers, each behind its predecessors to the same peer, and news to be told. Pure
//! state; no operation takes longer because much is queued, and none allocates anything for a transfer of
//! few runs once there was as much before.

use std::collections::VecDeque;

use rustc_hash::{FxHashMap, FxHashSet};

use crate::backend::{ConnId, Direction, Event, OpId};
use crate::error::{Error, Result};
use crate::extents::{Cursor, Runs, Spare};
use crate::kept::{Line, relax_map, relax_queue, relax_set};

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

/// All transfers and all news of one transport.
#[derive(Default)]
pub(super) struct Queue {
    /// Those that have not ended, and over which connection they go.
    transfers: FxHashMap<OpId, (ConnId, Transfer)>,
    lanes: FxHashMap<ConnId, Lane>,
    /// Whose turn is next.
    turns: VecDeque<ConnId>,
    news: VecDeque<Event>,
    /// Whose ends are among the news. The end of one that was stopped meanwhile is told to nobody.
    ended: FxHashSet<OpId>,
    /// Memory for the runs of transfers.
    spare: Spare,
}

/// One connection. It stays until that is given up.
#[derive(Default)]
struct Lane {
    /// First come, first served.
    line: Line,
    /// It is in `turns`, or has its turn.
    has_turn: bool,
}

impl Queue {
    /// The cursor for a transfer. It comes back with [`push`](Queue::push), or with
    /// [`take_back`](Queue::take_back).
    pub(super) fn cursor(&mut self, runs: &mut Runs) -> Result<Cursor> {
        self.spare.cursor(runs)
    }

    /// A transfer is done without having been queued.
    pub(super) fn take_back(&mut self, cursor: Cursor) {
        self.spare.take_back(cursor);
    }

    /// Appends a transfer to those of its connection.
    pub(super) fn push(&mut self, conn: ConnId, transfer: Transfer) {
        let op = transfer.op;
        self.transfers.insert(op, (conn, transfer));
        let lane = self.lanes.entry(conn).or_default();
        let transfers = &self.transfers;
        lane.line.push(op.0, |op| transfers.contains_key(&OpId(op)));
        if !std::mem::replace(&mut lane.has_turn, true) {
            self.turns.push_back(conn);
        }
    }

    /// True when transfers of this connection wait.
    pub(super) fn has_work_for(&self, conn: ConnId) -> bool {
        self.lanes
            .get(&conn)
            .is_some_and(|lane| !lane.line.is_empty())
    }

    /// True when nothing waits, neither transfers nor news.
    pub(super) fn is_idle(&self) -> bool {
        self.transfers.is_empty() && self.news.is_empty()
    }

    /// Takes the connection whose turn it is; [`end_turn`](Queue::end_turn) puts it back.
    pub(super) fn begin_turn(&mut self) -> Option<ConnId> {
        while let Some(conn) = self.turns.pop_front() {
            match self.lanes.get_mut(&conn) {
                Some(lane) if !lane.line.is_empty() => return Some(conn),
                Some(lane) => lane.has_turn = false,
                None => {}
            }
        }
        None
    }

    /// The oldest transfer of a connection.
    pub(super) fn front(&mut self, conn: ConnId) -> Option<&mut Transfer> {
        let lane = self.lanes.get_mut(&conn)?;
        let transfers = &self.transfers;
        let op = lane.line.first(|op| transfers.contains_key(&OpId(op)))?;
        let (_, transfer) = self.transfers.get_mut(&OpId(op))?;
        Some(transfer)
    }

    /// The oldest transfer of a connection has ended.
    pub(super) fn end_front(&mut self, conn: ConnId, result: Result<()>) {
        if let Some(op) = self.front(conn).map(|transfer| transfer.op) {
            self.remove(op);
            self.ended(op, result);
        }
    }

    /// The connection has had its turn and goes behind the others.
    pub(super) fn end_turn(&mut self, conn: ConnId) {
        if let Some(lane) = self.lanes.get_mut(&conn) {
            lane.has_turn = !lane.line.is_empty();
            if lane.has_turn {
                self.turns.push_back(conn);
            }
        }
    }

    /// Remembers that a transfer has ended.
    pub(super) fn ended(&mut self, op: OpId, result: Result<()>) {
        self.ended.insert(op);
        self.news.push_back(Event::Ended { op, result });
    }

    /// The peer is lost: its transfers end with `error`.
    pub(super) fn lost(&mut self, conn: ConnId, error: &Error) {
        for op in self.forget(conn) {
            self.ended(op, Err(error.clone()));
        }
        let error = error.clone();
        self.news.push_back(Event::Lost { conn, error });
    }

    /// Drops a transfer, or the news of its end.
    pub(super) fn stop(&mut self, op: OpId) {
        if !self.remove(op)
            && self.ended.remove(&op)
            // Nobody may ever ask for the news.
            && self.news.len() > 2 * self.ended.len() + 64
        {
            let ended = &self.ended;
            self.news.retain(|event| match event {
                Event::Ended { op, .. } => ended.contains(op),
                Event::Lost { .. } => true,
            });
            relax_queue(&mut self.news);
            relax_set(&mut self.ended);
        }
    }

    /// False if no such transfer waits.
    fn remove(&mut self, op: OpId) -> bool {
        let Some((conn, transfer)) = self.transfers.remove(&op) else {
            return false;
        };
        relax_map(&mut self.transfers);
        self.spare.take_back(transfer.cursor);
        if let Some(lane) = self.lanes.get_mut(&conn) {
            lane.line.leave();
        }
        true
    }

    /// Drops all transfers of a connection that have not ended, and says which.
    pub(super) fn forget(&mut self, conn: ConnId) -> Vec<OpId> {
        let Some(lane) = self.lanes.remove(&conn) else {
            return Vec::new();
        };
        if lane.has_turn {
            self.turns.retain(|other| *other != conn);
        }
        let transfers = &self.transfers;
        let waits = |op| transfers.contains_key(&OpId(op));
        let ops: Vec<OpId> = lane.line.into_ids(waits).map(OpId).collect();
        for op in &ops {
            self.remove(*op);
        }
        ops
    }

    /// Hands out all news, oldest first.
    pub(super) fn take_events(&mut self, events: &mut Vec<Event>) {
        for event in self.news.drain(..) {
            if let Event::Ended { op, .. } = &event
                && !self.ended.remove(op)
            {
                continue;
            }
            events.push(event);
        }
        relax_queue(&mut self.news);
        debug_assert!(self.ended.is_empty());
        relax_set(&mut self.ended);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;
    use crate::region::Region;
    use proptest::prelude::*;

    fn transfer(op: u64) -> Transfer {
        let region = Region::new(4096, 1, 1).unwrap();
        let runs = Runs::of(&[0], &[0], &region, &region.into()).unwrap();
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

    #[test]
    fn news_that_nobody_wants_does_not_pile_up() {
        let mut queue = Queue::default();
        queue.lost(ConnId(9), &Error::new(Status::PeerLost, "gone"));
        queue.ended(OpId(1), Ok(()));
        for op in 2..1000 {
            queue.ended(OpId(op), Ok(()));
            queue.stop(OpId(op));
        }
        assert!(queue.news.len() < 100, "{}", queue.news.len());
        let told = events(&mut queue);
        assert!(matches!(
            told[..],
            [
                Event::Lost { .. },
                Event::Ended {
                    op: OpId(1),
                    result: Ok(())
                }
            ]
        ));
    }

    #[test]
    fn news_of_a_burst_leave_no_memory_behind() {
        let mut queue = Queue::default();
        for told in [true, false] {
            for op in 0..100_000 {
                queue.ended(OpId(op), Ok(()));
            }
            if told {
                assert_eq!(events(&mut queue).len(), 100_000);
            } else {
                (0..100_000).for_each(|op| queue.stop(OpId(op)));
            }
            let kept = queue.ended.capacity().max(queue.news.capacity());
            assert!(kept < 10_000, "{kept}");
        }
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
                let with_turn = queue.lanes.values().filter(|lane| lane.has_turn).count();
                prop_assert_eq!(queue.turns.len(), with_turn);
                for (conn, lane) in &queue.lanes {
                    let waiting = queue.transfers.values().filter(|(of, _)| of == conn).count();
                    prop_assert_eq!(lane.line.is_empty(), waiting == 0);
                    prop_assert!(waiting == 0 || lane.has_turn);
                    prop_assert!(lane.line.places() <= 2 * waiting + 64);
                }
                prop_assert_eq!(queue.transfers.len() + queue.ended.len(), open.len());
            }
            while turn(&mut queue).is_some() {}
            settle(&mut queue, &mut open);
            prop_assert!(open.is_empty() && queue.is_idle());
            prop_assert!(queue.transfers.is_empty() && queue.ended.is_empty() && queue.turns.is_empty());
            prop_assert!(queue.lanes.values().all(|lane| lane.line.places() == 0 && !lane.has_turn));
            for conn in 0..4 {
                queue.forget(ConnId(conn));
            }
            prop_assert!(queue.lanes.is_empty());
        }
    }
}
