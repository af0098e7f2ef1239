//! How transfers of the simulated machine go on, and how the news of it gets out.

use super::marks::Mark;
use super::world::{Conn, Fact, Pending, World};
use crate::backend::{ConnId, Event, OpId};
use crate::error::Status;

impl World {
    /// Time passes, and the machine works.
    pub(super) fn tick(&mut self) {
        let mut at = 0;
        while at < self.ops.len() {
            if self.chance(self.rates.sluggish) {
                at += 1;
                continue;
            }
            let ended = if self.calm {
                while !self.advance(at, usize::MAX) {}
                true
            } else {
                let most = self.numbers.usize(1..=24);
                self.advance(at, most)
            };
            at += usize::from(!ended);
        }
    }

    /// A transfer goes on. True if it has ended, and is not in the list any more.
    pub(super) fn advance(&mut self, at: usize, most: usize) -> bool {
        let lost = self.is_lost(&self.ops[at]);
        if lost {
            // It is not noticed at once.
            if self.calm || self.numbers.bool() {
                self.mark(Mark::PeerGone);
                return self.end(at, Err(Status::PeerLost));
            }
            return false;
        }
        let op = &mut self.ops[at];
        if op.asked && !self.calm && self.numbers.u8(..3) == 0 {
            self.mark(Mark::CancelledLate);
            return self.end(at, Err(Status::Cancelled));
        }
        if op.fails_after == Some(0) {
            let midway = op.moved > 0;
            let status = self.some_failure();
            if midway {
                self.mark(Mark::FailedMidway);
            }
            return self.end(at, Err(status));
        }
        let piece = op.cursor.next_piece(most as u64);
        let piece = piece.expect("a transfer ends with its last piece");
        op.fails_after = op.fails_after.map(|pieces| pieces - 1);
        let (first, asked) = (op.moved, op.asked);
        op.moved += piece.len as usize;
        let places = (piece.local as usize, op.offset + piece.remote as usize);
        let moved = self.shadow.moves(
            op.claim,
            &mut self.memories,
            first,
            places,
            piece.len as usize,
        );
        let (agent, id) = (op.agent, op.id);
        let (done, fails) = (op.cursor.is_done(), op.fails_after.is_some());
        if let Err(breach) = moved {
            self.object(format!("transfer {id} of agent {agent}: {breach}"));
        }
        if asked {
            self.mark(Mark::BytesLate);
        }
        if !done {
            return false;
        }
        if fails {
            self.mark(Mark::FailedAtEnd);
            let status = self.some_failure();
            return self.end(at, Err(status));
        }
        if asked {
            self.mark(Mark::DoneLate);
        }
        self.end(at, Ok(()))
    }

    fn end(&mut self, at: usize, result: Result<(), Status>) -> bool {
        let op = self.ops.remove(at);
        self.agents[op.agent].pending.push(Pending {
            event: Event::Ended {
                op: OpId(op.id),
                result: result.map_err(World::error),
            },
            conn: op.conn,
            asked: op.asked,
        });
        true
    }

    /// The news that there are for an agent, as far as they are given out now.
    pub(super) fn give_out(&mut self, agent: usize, events: &mut Vec<Event>) {
        self.notice_losses(agent);
        if self.chance(self.rates.hold) {
            self.mark(Mark::Held);
            return;
        }
        let mut pending = std::mem::take(&mut self.agents[agent].pending);
        if pending.len() > 1 && self.chance(self.rates.reorder) {
            self.mark(Mark::Reordered);
            self.numbers.shuffle(&mut pending);
        }
        for news in pending {
            if self.chance(self.rates.hold) {
                self.agents[agent].pending.push(news);
                continue;
            }
            match &news.event {
                Event::Ended { op, result } => {
                    let outcome = result.as_ref().copied().map_err(|error| error.status);
                    self.agents[agent].over.push(op.0);
                    self.facts.push(Fact::Ended(op.0, outcome));
                }
                Event::Lost { conn, .. } => {
                    self.mark(match self.conn(agent, conn.0) {
                        Some(_) => Mark::Lost,
                        None => Mark::LostAfter,
                    });
                    self.facts.push(Fact::Lost(conn.0));
                }
            }
            events.push(news.event);
        }
        if self.chance(self.rates.duplicate) {
            self.give_out_again(agent, events);
        }
    }

    /// More than a backend may: what is over is told to have ended once more, and otherwise. A
    /// transport that holds even so holds what it promises.
    fn give_out_again(&mut self, agent: usize, events: &mut Vec<Event>) {
        self.mark(Mark::Duplicated);
        let over = &self.agents[agent].over;
        let op = match over.len() {
            0 => [0, u64::MAX][self.numbers.usize(..2)],
            some => over[self.numbers.usize(..some)],
        };
        let outcome = [Ok(()), Err(Status::Backend)][self.numbers.usize(..2)];
        self.facts.push(Fact::Ended(op, outcome));
        events.push(Event::Ended {
            op: OpId(op),
            result: outcome.map_err(World::error),
        });
    }

    fn notice_losses(&mut self, agent: usize) {
        let noticed = |world: &mut World, conn: &Conn| {
            !conn.told && world.is_gone(conn) && (world.calm || world.numbers.bool())
        };
        for ghost in [false, true] {
            let list = |world: &World| match ghost {
                false => world.agents[agent].conns.len(),
                true => world.agents[agent].ghosts.len(),
            };
            for at in 0..list(self) {
                let conn = match ghost {
                    false => self.agents[agent].conns[at].clone(),
                    true => self.agents[agent].ghosts[at].clone(),
                };
                if noticed(self, &conn) {
                    let place = &mut self.agents[agent];
                    match ghost {
                        false => place.conns[at].told = true,
                        true => place.ghosts[at].told = true,
                    }
                    place.pending.push(Pending {
                        event: Event::Lost {
                            conn: ConnId(conn.id),
                            error: World::error(Status::PeerLost),
                        },
                        conn: conn.id,
                        asked: true,
                    });
                }
            }
        }
    }
}
