//! Copies of much memory: past the caches, two stretches at a time.
//!
//! Where two of them have the same block as destination, one of the blocks is found there, not a
//! mixture. The two run at one pace, so one stays ahead of the other all the way; where they are level,
//! the one that began later is written second. That holds as long as blocks are cut in the same places
//! wherever they come, and have their ends together with their lines: see [`Queue::push`] and [`cut`].

use super::copy::Stretch;
use super::lines::{LINE, Mover, prefetch};

/// Transfers of up to so many bytes are left to plain copies: the target may find them in a cache.
const WARM_BYTES: u64 = 256 << 10;
/// Shorter blocks are not worth the trouble.
const LEAST_BLOCK: u64 = 1 << 10;
/// Longest stretch.
const PART: u64 = 128 << 10;
/// Most stretches that are gathered before they are copied.
const MOST: usize = 64;
/// So many lines are fetched before their stretch begins. The processor finds out by itself how it
/// goes on, but not where the next one is.
const AHEAD: usize = 4;

/// What copies a transfer in this way. `None`: plain copies are better.
pub(super) fn suitable(total_bytes: u64, block_len: u64) -> Option<Mover> {
    let suits = total_bytes > WARM_BYTES && block_len >= LEAST_BLOCK;
    suits.then(Mover::find).flatten()
}

/// The length of a piece of a run that a step ends with, at most `most`; `at` as in [`Queue::push`]. It
/// ends where `push` would cut it, too: else the rest of a block would be left to the next step, and the
/// same block be written as a whole in this one. 0: nothing fits.
pub(super) fn cut(at: u64, most: u64, block_len: u64) -> u64 {
    most.saturating_sub((at + most) % block_len % PART)
}

/// The copies of one step.
pub(super) struct Queue {
    mover: Mover,
    stretches: [Stretch; MOST],
    count: usize,
}

impl Queue {
    /// An empty one.
    pub(super) fn new(mover: Mover) -> Queue {
        Queue {
            mover,
            stretches: [Stretch::NONE; MOST],
            count: 0,
        }
    }

    /// Adds a piece of a run of blocks. `at`: where it begins, counted from the start of any block.
    pub(super) fn push(&mut self, mut piece: Stretch, mut at: u64, block_len: u64) {
        while piece.len() > 0 {
            let into = at % block_len;
            let mut most = (block_len - into).min(PART - into % PART);
            // Of blocks that are whole lines the ends are nothing special: they stay together.
            let ends = piece.to() as u64 | block_len | into;
            if block_len < PART && ends.is_multiple_of(LINE as u64) {
                most += (PART / block_len - 1) * block_len;
            }
            if self.count == MOST {
                self.copy();
                self.count = 0;
            }
            self.stretches[self.count] = piece.take(most as usize);
            self.count += 1;
            at += most;
        }
    }

    /// Makes the copies. Who learns of that finds all the bytes.
    pub(super) fn finish(self) {
        self.copy();
        self.mover.finish();
    }

    fn copy(&self) {
        let stretches = &self.stretches[..self.count];
        let mut begun = 0;
        let mut next = || {
            let stretch = stretches.get(begun)?;
            // The other stream takes the one in between.
            if let Some(after) = stretches.get(begun + 2) {
                (0..AHEAD).for_each(|line| prefetch(after.from() + line * LINE));
            }
            begun += 1;
            Some(Stream::begin(*stretch))
        };
        let (mut older, mut younger) = (next(), next());
        while let Some(first) = &mut older {
            if younger.is_none() {
                younger = first.share();
            }
            let Some(second) = &mut younger else {
                first.end();
                break;
            };
            let count = first.lines().min(second.lines());
            if count > 0 {
                self.mover.pair(first.body, second.body, count);
                first.body.take(count * LINE);
                second.body.take(count * LINE);
            }
            if first.lines() > 0 {
                second.end();
                younger = next();
                continue;
            }
            first.end();
            if second.lines() > 0 {
                older = younger.take();
            } else {
                second.end();
                older = next();
            }
            younger = next();
        }
    }
}

/// One of the two copies that are being made.
struct Stream {
    /// Whole lines.
    body: Stretch,
    /// What is left behind them.
    tail: Stretch,
}

impl Stream {
    fn begin(mut stretch: Stretch) -> Stream {
        stretch.take(stretch.to().wrapping_neg() % LINE).copy();
        Stream {
            body: stretch.take(stretch.len() / LINE * LINE),
            tail: stretch,
        }
    }

    fn lines(&self) -> usize {
        self.body.len() / LINE
    }

    /// Gives the second half away. `None` when it is too little.
    fn share(&mut self) -> Option<Stream> {
        let half = self.lines() / 2;
        if half == 0 {
            return None;
        }
        let first = self.body.take(half * LINE);
        let body = std::mem::replace(&mut self.body, first);
        let tail = std::mem::replace(&mut self.tail, Stretch::NONE);
        Some(Stream { body, tail })
    }

    /// Copies what the other stream has no counterpart for: at most a line, and the tail.
    fn end(&self) {
        self.body.copy();
        self.tail.copy();
    }
}

#[cfg(test)]
mod tests;
