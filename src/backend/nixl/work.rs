//! The work of one poll: what is posted when, and what an answer of the engine means.

use std::time::Instant;

use super::engine::State;
use super::lane::{Doubt, Purpose};
use super::piece::ON_ITS_WAY;
use super::*;

impl Nixl {
    /// One lane's turn: takes what has ended, posts one more piece. True if anything moved.
    pub(super) fn serve(
        &mut self,
        conn: ConnId,
        now: Instant,
        deadline: Instant,
        events: &mut Vec<Event>,
    ) -> bool {
        let mut moved = self.reap(conn, now, events);
        moved |= self.settle_doubt(conn, now, events);
        moved |= self.post_probe(conn, now);
        let Some(lane) = self.lanes.get_mut(&conn) else {
            return moved;
        };
        lane.warn_of_silence(now);
        // What fits into less is not worth a request.
        if lane.room() >= ON_ITS_WAY
            && lane.doubt.is_none()
            && let Some(op) = lane.queue.first(is_queued(&self.ops))
        {
            let op = OpId(op);
            self.post_piece(conn, op, now, deadline);
            self.finish_if_ended(op, events);
            moved = true;
        }
        self.unload_if_done(conn);
        moved
    }

    /// Takes ended requests from the front. Requests of one endpoint end in order, or nearly so.
    ///
    /// Once NIXL has dropped a broken peer, it calls all its requests ended without asking UCX, which has
    /// purged them by then: UCX reports an endpoint as broken when it has given up all that was under way.
    pub(super) fn reap(&mut self, conn: ConnId, now: Instant, events: &mut Vec<Event>) -> bool {
        let mut moved = false;
        loop {
            let (Some(lane), Some(engine)) = (self.lanes.get_mut(&conn), &self.engine) else {
                return moved;
            };
            let Some(front) = lane.posted.front() else {
                return moved;
            };
            let failure = match engine.state(&front.request) {
                State::Running(()) => return moved,
                State::Done => None,
                State::Failed(reason) => Some(reason),
            };
            moved = true;
            let ended = lane.posted.pop_front().expect("it was looked at");
            lane.posted_bytes -= ended.bytes;
            if lane.silence.ends() && failure.is_none() {
                log!(Info, "the NIXL agent {} answers", Quoted(&lane.agent));
            }
            if failure.is_none() && (self.one_endpoint || ended.purpose == Purpose::Mail) {
                lane.outbox.prove(ended.mark);
            }
            match (ended.purpose, failure) {
                (Purpose::Piece(op), failure) => {
                    self.piece_ended(op);
                    if let Some(reason) = failure {
                        self.failed(conn, op, ended.first, reason, now);
                    }
                    self.finish_if_ended(op, events);
                }
                (Purpose::Doubt, failure) => {
                    if let Some(doubt) = &mut lane.doubt {
                        doubt.probing = false;
                    }
                    match failure {
                        None => self.end_doubt(conn, events),
                        Some(_) => self.probe_failed(conn),
                    }
                }
                (Purpose::Mail, failure) => self.probe_ended(conn, failure.is_some(), now),
            }
        }
    }

    fn piece_ended(&mut self, op: OpId) {
        self.ops.get_mut(&op).expect("it has posted pieces").posted -= 1;
    }

    /// Posts the next part of `op`, which has one left: as much as there is time for.
    fn post_piece(&mut self, conn: ConnId, op_id: OpId, now: Instant, deadline: Instant) {
        let (Some(engine), Some(lane), Some(op)) = (
            &mut self.engine,
            self.lanes.get_mut(&conn),
            self.ops.get_mut(&op_id),
        ) else {
            return;
        };
        let mut size = lane.speed.size_for(deadline.saturating_duration_since(now));
        size.bytes = size.bytes.min(lane.room());
        gather(&mut op.cursor, size, &lane.remote, &mut self.pieces);
        let first = self.pieces[0];
        if op.cursor.is_done() {
            lane.dequeue(op);
        }
        let before = processor_time();
        let state = engine.post(
            op.direction,
            &lane.alias,
            &self.region,
            &lane.remote,
            &self.pieces,
        );
        let work = processor_time().saturating_sub(before);
        let handed_over = matches!(state, State::Running(_));
        lane.speed.learn(&self.pieces, work, handed_over);
        match state {
            State::Done => lane.prove_if(self.one_endpoint),
            State::Running(request) => {
                op.posted += 1;
                lane.keep(request, Purpose::Piece(op_id), &self.pieces);
            }
            State::Failed(reason) => self.failed(conn, op_id, first, reason, now),
        }
    }

    /// A piece failed: the transfer has failed, and perhaps the peer is gone.
    pub(super) fn failed(
        &mut self,
        conn: ConnId,
        op_id: OpId,
        first: Piece,
        reason: String,
        now: Instant,
    ) {
        let (Some(lane), Some(op)) = (self.lanes.get_mut(&conn), self.ops.get_mut(&op_id)) else {
            return;
        };
        lane.dequeue(op);
        op.error.get_or_insert_with(|| {
            Error::new(
                Status::Backend,
                format!("NIXL could not move the blocks ({reason})"),
            )
        });
        if self.check_lost(conn) {
            return;
        }
        let (Some(lane), Some(op)) = (self.lanes.get_mut(&conn), self.ops.get_mut(&op_id)) else {
            return;
        };
        let doubt = lane.doubt.get_or_insert_with(|| Doubt {
            failed: Vec::new(),
            probe: Piece { len: 1, ..first },
            direction: op.direction,
            next: now,
            failures: 0,
            probing: false,
        });
        if !op.doubted {
            op.doubted = true;
            doubt.failed.push(op_id);
        }
    }

    /// Asks the engine whether it has dropped the peer, which it does for some of the ways in which a
    /// peer is found dead.
    pub(super) fn check_lost(&mut self, conn: ConnId) -> bool {
        let (Some(engine), Some(lane)) = (&self.engine, self.lanes.get(&conn)) else {
            return false;
        };
        let lost = lane.lost.is_some() || !engine.knows(&lane.alias);
        if lost {
            self.lose(conn);
        }
        lost
    }

    /// The peer is gone: what was not posted ends now, what was posted ends when it is asked for.
    pub(super) fn lose(&mut self, conn: ConnId) {
        let Some(lane) = self.lanes.get_mut(&conn) else {
            return;
        };
        let error = lane.lost.get_or_insert_with(|| {
            let error = Error::new(
                Status::PeerLost,
                format!(
                    "the NIXL agent {} is gone: it died or closed, or has no file descriptors left, or its memory cannot be reached any more",
                    Quoted(&lane.agent)
                ),
            );
            let told = error.clone();
            self.pending.push(Event::Lost { conn, error: told });
            error
        });
        let error = error.clone();
        lane.outbox.give_up();
        let doubted = lane.doubt.take().map(|doubt| doubt.failed);
        let queued = std::mem::take(&mut lane.queue).into_ids(is_queued(&self.ops));
        let queued: Vec<OpId> = queued.map(OpId).collect();
        for op_id in doubted.into_iter().flatten().chain(queued) {
            let Some(op) = self.ops.get_mut(&op_id) else {
                continue;
            };
            op.queued = false;
            op.doubted = false;
            op.error = Some(error.clone());
            if op.posted == 0 {
                self.forget_op(op_id);
                let result = Err(error.clone());
                self.pending.push(Event::Ended { op: op_id, result });
            }
        }
    }

    /// Sends the next probe.
    fn settle_doubt(&mut self, conn: ConnId, now: Instant, events: &mut Vec<Event>) -> bool {
        let (Some(engine), Some(lane)) = (&mut self.engine, self.lanes.get_mut(&conn)) else {
            return false;
        };
        let Some(doubt) = &mut lane.doubt else {
            return false;
        };
        if doubt.probing || now < doubt.next {
            return false;
        }
        doubt.next = now + PROBE_EVERY;
        let (direction, probe) = (doubt.direction, doubt.probe);
        match engine.post(direction, &lane.alias, &self.region, &lane.remote, &[probe]) {
            State::Done => self.end_doubt(conn, events),
            State::Running(request) => {
                doubt.probing = true;
                lane.keep(request, Purpose::Doubt, &[probe]);
            }
            State::Failed(_) => self.probe_failed(conn),
        }
        true
    }

    fn probe_failed(&mut self, conn: ConnId) {
        if self.check_lost(conn) {
            return;
        }
        if let Some(doubt) = self
            .lanes
            .get_mut(&conn)
            .and_then(|lane| lane.doubt.as_mut())
        {
            doubt.failures += 1;
            // What can neither be posted nor found broken is taken for gone, also for what was posted
            // before: where posts fail at once, the kernel copies within them, or nothing is sent.
            if doubt.failures >= MAX_PROBES {
                self.lose(conn);
            }
        }
    }

    /// The peer lives: those that failed have failed, and nothing of them is under way.
    fn end_doubt(&mut self, conn: ConnId, events: &mut Vec<Event>) {
        let Some(doubt) = self.lanes.get_mut(&conn).and_then(|lane| lane.doubt.take()) else {
            return;
        };
        for op_id in doubt.failed {
            if let Some(op) = self.ops.get_mut(&op_id) {
                op.doubted = false;
                self.finish_if_ended(op_id, events);
            }
        }
    }

    fn finish_if_ended(&mut self, op_id: OpId, events: &mut Vec<Event>) {
        if self.ops.get(&op_id).is_none_or(|op| !op.has_ended()) {
            return;
        }
        let op = self.forget_op(op_id).expect("it was looked at");
        let lost = self.lanes.get(&op.conn).and_then(|lane| lane.lost.clone());
        let result = match op.error {
            // A dead peer is the reason, whatever came of it first.
            Some(error) => Err(lost.unwrap_or(error)),
            None if op.cursor.is_done() => Ok(()),
            None => Err(Error::new(
                Status::Cancelled,
                "the transfer was given up when some of it had been moved",
            )),
        };
        self.spare.take_back(op.cursor);
        events.push(Event::Ended { op: op_id, result });
    }

    /// Gives up the endpoint of a connection that the transport gave up, when nothing of it runs.
    pub(super) fn unload_if_done(&mut self, conn: ConnId) {
        let Some(lane) = self.lanes.get(&conn) else {
            return;
        };
        if lane.registered || lane.is_busy() {
            return;
        }
        if let Some(engine) = &self.engine {
            engine.unload(&lane.alias);
        }
        self.lanes.remove(&conn);
    }
}
