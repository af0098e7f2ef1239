//! How much one request carries.
//!
//! Where NIXL copies inside its post call, a request must not be larger than what the poll has time
//! for; but each post costs tens of microseconds by the time that its code and data are back in the
//! caches, so it should not be much smaller either. What a post takes is learned from those before.

use std::time::Duration;

use super::coverage::Coverage;
use crate::extents::{Cursor, Piece};

/// The bounds of a request, whatever was learned.
const SMALLEST: u64 = 256 << 10;
const LARGEST: u64 = 16 << 20;

/// The same where a post only hands the work over. There no time is saved by less, because a socket takes
/// only so much at once; but each request costs an answer that it has arrived, and each cut one more run.
pub const ON_ITS_WAY: u64 = 2 << 20;

/// What the runs of such a request may take, even if the poll has less time left.
const PATIENCE: Duration = Duration::from_millis(1);

/// From so many runs on NIXL shares a request among its threads, if it has any, each with an endpoint of
/// its own: when one part fails, nothing says that the others have ended. No request is so large.
const SHARED_FROM: usize = 1024;
const MOST_RUNS: usize = 512;
const _: () = assert!(MOST_RUNS < SHARED_FROM);

/// What is believed of a peer before anything was posted, in bytes a millisecond.
const FIRST_SPEED: u64 = 1 << 20;

/// A run can cost a system call, which takes as long as it takes to copy so many bytes.
const BYTES_PER_RUN: u64 = 4096;

/// How quickly posts to one peer return.
pub struct Speed {
    bytes_per_ms: u64,
    /// The work went on after the last post; `None`: nothing was posted yet.
    hands_over: Option<bool>,
}

impl Speed {
    /// Nothing is known yet.
    pub fn unknown() -> Speed {
        Speed {
            bytes_per_ms: FIRST_SPEED,
            hands_over: None,
        }
    }

    /// The size of a request whose post call returns after about `time`.
    pub fn size_for(&self, time: Duration) -> Size {
        let weight = |time: Duration| {
            let micros = u64::try_from(time.as_micros()).unwrap_or(u64::MAX);
            let weight = self.bytes_per_ms.saturating_mul(micros) / 1000;
            weight.clamp(SMALLEST, LARGEST)
        };
        match self.hands_over {
            Some(true) => Size::of(ON_ITS_WAY, weight(time.max(PATIENCE))),
            Some(false) => Size::of(weight(time), weight(time)),
            // The first one may be handed over.
            None => Size::of(weight(time).min(ON_ITS_WAY), weight(time)),
        }
    }

    /// The post of `pieces` took `time` of the processor: by the clock, a busy machine would look like a
    /// slow peer. `handed_over`: they had not arrived when it returned.
    pub fn learn(&mut self, pieces: &[Piece], time: Duration, handed_over: bool) {
        let bytes: u64 = pieces.iter().map(|piece| piece.len).sum();
        let weight = bytes.max(pieces.len() as u64 * BYTES_PER_RUN);
        if weight < SMALLEST {
            // So little says more about the call than about the copy.
            return;
        }
        self.hands_over = Some(handed_over);
        let micros = (time.as_micros() as u64).max(1);
        let seen = weight.saturating_mul(1000) / micros;
        // One post may have run into something that the next does not.
        self.bytes_per_ms = seen.clamp(self.bytes_per_ms / 2, self.bytes_per_ms * 2);
        self.bytes_per_ms = self.bytes_per_ms.clamp(SMALLEST / 16, LARGEST * 1000);
    }
}

/// How much one request may carry.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Size {
    /// Bytes at most.
    pub bytes: u64,
    /// Runs at most.
    pub runs: usize,
}

impl Size {
    /// So many bytes, and as many runs as take the time of `weight` bytes.
    pub fn of(bytes: u64, weight: u64) -> Size {
        let runs = (weight / BYTES_PER_RUN).min(MOST_RUNS as u64) as usize;
        Size { bytes, runs }
    }
}

/// Takes the next pieces of a transfer, for one request. Each lies in one registration of the peer's, so
/// that NIXL gets as many descriptors as there are pieces.
pub fn gather(cursor: &mut Cursor, size: Size, remote: &Coverage, pieces: &mut Vec<Piece>) {
    pieces.clear();
    let mut left = size.bytes;
    while left > 0 && pieces.len() < size.runs {
        let Some(at) = cursor.next_remote() else {
            break;
        };
        let Some(piece) = cursor.next_piece(left.min(remote.whole_from(at))) else {
            break;
        };
        left -= piece.len;
        pieces.push(piece);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::extents::Runs;
    use crate::region::Region;

    /// All of a region is one registration.
    fn whole(region: &Region) -> Coverage {
        Coverage::new(&[(region.base(), region.end())], &(*region).into()).unwrap()
    }

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
                let size = speed.size_for(slice).bytes;
                speed.learn(
                    &post(size),
                    Duration::from_micros(size / bytes_per_us),
                    false,
                );
            }
            let micros = speed.size_for(slice).bytes / bytes_per_us;
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
            speed.learn(&post(LARGEST), Duration::ZERO, false);
        }
        assert_eq!(speed.size_for(Duration::from_secs(1 << 40)).bytes, LARGEST);
        assert_eq!(speed.size_for(Duration::ZERO).bytes, SMALLEST);
        for _ in 0..200 {
            speed.learn(&post(SMALLEST), Duration::from_secs(100), false);
        }
        assert_eq!(speed.size_for(Duration::from_millis(1)).bytes, SMALLEST);
        // It finds its way back.
        for _ in 0..200 {
            speed.learn(&post(SMALLEST), Duration::from_micros(50), false);
        }
        assert!(speed.size_for(Duration::from_millis(1)).bytes > 4 * SMALLEST);
    }

    #[test]
    fn one_slow_post_changes_little() {
        let mut speed = Speed::unknown();
        let before = speed.size_for(Duration::from_millis(1)).bytes;
        speed.learn(&post(LARGEST), Duration::from_secs(1), false);
        assert!(speed.size_for(Duration::from_millis(1)).bytes >= before / 2);
    }

    #[test]
    fn small_blocks_count_as_calls() {
        let mut speed = Speed::unknown();
        let many: Vec<Piece> = (0..256).flat_map(|_| post(64)).collect();
        for _ in 0..20 {
            speed.learn(&many, Duration::from_micros(512), false);
        }
        // 2 us a run: a millisecond is 500 runs.
        let runs = speed.size_for(Duration::from_millis(1)).runs;
        assert!((450..550).contains(&runs), "{runs}");
    }

    #[test]
    fn a_first_request_may_be_handed_over() {
        let long = Duration::from_secs(1);
        let mut speed = Speed::unknown();
        assert_eq!(speed.size_for(long).bytes, ON_ITS_WAY);
        assert!(speed.size_for(Duration::from_millis(1)).bytes < ON_ITS_WAY);
        speed.learn(&post(ON_ITS_WAY), Duration::from_micros(500), false);
        assert_eq!(speed.size_for(long).bytes, LARGEST);
    }

    #[test]
    fn what_is_handed_over_is_as_large_as_it_may_be_and_its_runs_take_their_time() {
        let many: Vec<Piece> = (0..256).flat_map(|_| post(4096)).collect();
        let mut speed = Speed::unknown();
        for _ in 0..20 {
            speed.learn(&many, Duration::from_micros(1024), true);
        }
        for time in [Duration::ZERO, PATIENCE] {
            let size = speed.size_for(time);
            assert_eq!(size.bytes, ON_ITS_WAY);
            // 4 us a run.
            assert!((240..260).contains(&size.runs), "{size:?}");
        }
        // What copies after all has the time for a limit.
        speed.learn(&many, Duration::from_micros(1024), false);
        let size = speed.size_for(PATIENCE);
        assert!(size.bytes.abs_diff(1 << 20) < 1 << 17, "{size:?}");
    }

    #[test]
    fn a_request_ends_where_its_bytes_do() {
        let region = Region::new(4096, 4096, 100).unwrap();
        let runs = Runs::of(&[0, 2, 4], &[0, 2, 4], &region, &region.into()).unwrap();
        let (mut cursor, mut pieces) = (Cursor::new(runs), Vec::new());
        let size = Size {
            bytes: 250,
            runs: 10,
        };
        for lens in [vec![100, 100, 50], vec![50], vec![]] {
            gather(&mut cursor, size, &whole(&region), &mut pieces);
            let found: Vec<u64> = pieces.iter().map(|piece| piece.len).collect();
            assert_eq!(found, lens);
        }
    }

    #[test]
    fn no_request_has_too_many_runs() {
        let region = Region::new(4096, 4096, 1).unwrap();
        let idxs: Vec<u32> = (0..2048).map(|i| 2 * i).collect();
        let runs = Runs::of(&idxs, &idxs, &region, &region.into()).unwrap();
        let (mut cursor, mut pieces) = (Cursor::new(runs), Vec::new());
        for (weight, runs) in [(SMALLEST, 64), (LARGEST, MOST_RUNS)] {
            gather(
                &mut cursor,
                Size::of(LARGEST, weight),
                &whole(&region),
                &mut pieces,
            );
            assert_eq!(pieces.len(), runs);
        }
    }

    /// A peer that has registered each block by itself.
    #[test]
    fn no_request_has_too_many_descriptors() {
        let region = Region::new(4096, 4096, 256).unwrap();
        let idxs: Vec<u32> = (0..4096).collect();
        let blocks: Vec<_> = (0..4096)
            .map(|i| (4096 + 256 * i, 4096 + 256 * (i + 1)))
            .collect();
        let remote = Coverage::new(&blocks, &region.into()).unwrap();
        let runs = Runs::of(&idxs, &idxs, &region, &region.into()).unwrap();
        let (mut cursor, mut pieces) = (Cursor::new(runs), Vec::new());
        let mut bytes = 0;
        while !cursor.is_done() {
            gather(
                &mut cursor,
                Size::of(LARGEST, LARGEST),
                &remote,
                &mut pieces,
            );
            let parts = pieces.iter().map(|one| remote.parts(one.remote, one.len));
            assert!(parts.map(Iterator::count).sum::<usize>() <= MOST_RUNS);
            bytes += pieces.iter().map(|one| one.len).sum::<u64>();
        }
        assert_eq!(bytes, 4096 * 256);
    }
}
