//! How much one request carries.
//!
//! Where NIXL copies inside its post call, a request must not be larger than what the poll has time
//! for; but each post costs tens of microseconds by the time that its code and data are back in the
//! caches, so it should not be much smaller either. What a post takes is learned from those before.

use std::time::Duration;

use crate::extents::{Cursor, Piece};

/// The bounds of a request, whatever was learned. A transport whose post call only hands the work over
/// looks as if it had no limit.
const SMALLEST: u64 = 256 << 10;
const LARGEST: u64 = 2 << 20;

/// From so many runs on NIXL shares a request among its threads, if it has any, each with an endpoint of
/// its own: when one part fails, nothing says that the others have ended. No request is so large.
const SHARED_FROM: u64 = 1024;
const _: () = assert!(LARGEST / BYTES_PER_RUN < SHARED_FROM);

/// What is believed of a peer before anything was posted, in bytes a millisecond.
const FIRST_SPEED: u64 = 1 << 20;

/// A run can cost a system call, which takes as long as it takes to copy so many bytes.
const BYTES_PER_RUN: u64 = 4096;

/// How quickly posts to one peer return.
pub struct Speed {
    bytes_per_ms: u64,
}

impl Speed {
    /// Nothing is known yet.
    pub fn unknown() -> Speed {
        Speed {
            bytes_per_ms: FIRST_SPEED,
        }
    }

    /// The size of a request whose post call returns after about `time`.
    pub fn size_for(&self, time: Duration) -> u64 {
        let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
        let size = self.bytes_per_ms.saturating_mul(micros) / 1000;
        size.clamp(SMALLEST, LARGEST)
    }

    /// The post of `pieces` took `time` of the processor: by the clock, a busy machine would look like a
    /// slow peer.
    pub fn learn(&mut self, pieces: &[Piece], time: Duration) {
        let bytes: u64 = pieces.iter().map(|piece| piece.len).sum();
        let weight = bytes.max(pieces.len() as u64 * BYTES_PER_RUN);
        if weight < SMALLEST {
            // So little says more about the call than about the copy.
            return;
        }
        let micros = (time.as_micros() as u64).max(1);
        let seen = weight.saturating_mul(1000) / micros;
        // One post may have run into something that the next does not.
        self.bytes_per_ms = seen.clamp(self.bytes_per_ms / 2, self.bytes_per_ms * 2);
        self.bytes_per_ms = self.bytes_per_ms.clamp(SMALLEST / 16, LARGEST * 1000);
    }
}

/// Takes the next pieces of a transfer, for one request of about `size` bytes.
pub fn gather(cursor: &mut Cursor, size: u64, pieces: &mut Vec<Piece>) {
    pieces.clear();
    let mut left = size;
    while left > 0 && (pieces.len() as u64) < size / BYTES_PER_RUN {
        let Some(piece) = cursor.next_piece(left) else {
            break;
        };
        left -= piece.len;
        pieces.push(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn post(bytes: u64) -> Vec<Piece> {
        let piece = Piece {
            local: 0,
            remote: 0,
            len: bytes,
        };
        vec![piece]
    }

    #[test]
    fn a_request_fits_the_time() {
        let slice = Duration::from_micros(500);
        for bytes_per_us in [600, 2_500, 4_000] {
            let mut speed = Speed::unknown();
            for _ in 0..20 {
                let size = speed.size_for(slice);
                speed.learn(&post(size), Duration::from_micros(size / bytes_per_us));
            }
            let micros = speed.size_for(slice) / bytes_per_us;
            assert!(
                (450..550).contains(&micros),
                "{micros} us at {bytes_per_us}"
            );
        }
    }

    #[test]
    fn it_has_bounds() {
        let mut speed = Speed::unknown();
        for _ in 0..200 {
            speed.learn(&post(LARGEST), Duration::ZERO);
        }
        assert_eq!(speed.size_for(Duration::from_secs(1 << 40)), LARGEST);
        assert_eq!(speed.size_for(Duration::ZERO), SMALLEST);
        for _ in 0..200 {
            speed.learn(&post(SMALLEST), Duration::from_secs(100));
        }
        assert_eq!(speed.size_for(Duration::from_millis(1)), SMALLEST);
        // It finds its way back.
        for _ in 0..200 {
            speed.learn(&post(SMALLEST), Duration::from_micros(50));
        }
        assert!(speed.size_for(Duration::from_millis(1)) > 4 * SMALLEST);
    }

    #[test]
    fn one_slow_post_changes_little() {
        let mut speed = Speed::unknown();
        let before = speed.size_for(Duration::from_millis(1));
        speed.learn(&post(LARGEST), Duration::from_secs(1));
        assert!(speed.size_for(Duration::from_millis(1)) >= before / 2);
    }

    #[test]
    fn small_blocks_count_as_calls() {
        let mut speed = Speed::unknown();
        let many: Vec<Piece> = (0..256).flat_map(|_| post(64)).collect();
        for _ in 0..20 {
            speed.learn(&many, Duration::from_micros(512));
        }
        // 2 us a run: a millisecond is 500 runs.
        let runs = speed.size_for(Duration::from_millis(1)) / BYTES_PER_RUN;
        assert!((450..550).contains(&runs), "{runs}");
    }
}
