//! From two index lists to what really has to be moved: runs of blocks that are contiguous on both
//! sides, and a cursor that hands out a transfer in pieces of bounded size.

use crate::error::{Result, fail};
use crate::region::Region;

/// `blocks` consecutive blocks from local block `local` and remote block `remote` on.
///
/// Indices, not addresses: 12 bytes a run keep the submission of 100,000 scattered blocks cheap.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Run {
    /// First local block.
    pub local: u32,
    /// First remote block.
    pub remote: u32,
    /// Length in blocks, at least 1.
    pub blocks: u32,
}

/// The merged runs of one transfer, in the order of the caller's lists.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Runs {
    runs: Vec<Run>,
    bytes: u64,
}

impl Runs {
    /// Checks every index against its side's region, then merges neighbours.
    ///
    /// An index may be repeated. Where destinations repeat, the caller finds one of the written
    /// blocks there; which one is not said.
    pub fn merge(
        local_idxs: &[u32],
        remote_idxs: &[u32],
        local: &Region,
        remote: &Region,
    ) -> Result<Runs> {
        if local_idxs.len() != remote_idxs.len() {
            fail!(
                InvalidArg,
                "{} local indexes and {} remote ones: each block needs both",
                local_idxs.len(),
                remote_idxs.len()
            );
        }
        if local_idxs.is_empty() {
            fail!(
                InvalidArg,
                "count is 0, but a transfer moves at least one block"
            );
        }
        // Indexes may be repeated, so this is not bounded by the regions.
        let count = local_idxs.len() as u64;
        let Some(bytes) = count.checked_mul(local.block_len()) else {
            fail!(
                InvalidArg,
                "count is {count}: so many blocks of {} bytes are more than 2^64 bytes",
                local.block_len()
            );
        };
        check("local_idxs", local_idxs, "the region", local)?;
        check("remote_idxs", remote_idxs, "the peer's region", remote)?;

        // Memory that is reserved and not touched costs nothing; growing would copy.
        let mut runs: Vec<Run> = Vec::new();
        if runs.try_reserve_exact(local_idxs.len()).is_err() {
            fail!(NoMemory, "no memory to remember {count} blocks");
        }
        let mut pairs = local_idxs.iter().copied().zip(remote_idxs.iter().copied());
        let (first_local, first_remote) = pairs.next().expect("the lists are not empty");
        let mut run = Run {
            local: first_local,
            remote: first_remote,
            blocks: 1,
        };
        for (l, r) in pairs {
            // 64-bit sums: a run may end at index 2^32 - 1.
            let extends = u64::from(run.local) + u64::from(run.blocks) == u64::from(l)
                && u64::from(run.remote) + u64::from(run.blocks) == u64::from(r)
                && run.blocks < u32::MAX;
            if extends {
                run.blocks += 1;
            } else {
                runs.push(run);
                run = Run {
                    local: l,
                    remote: r,
                    blocks: 1,
                };
            }
        }
        runs.push(run);
        runs.shrink_to_fit();
        Ok(Runs { runs, bytes })
    }

    /// The runs, at least one.
    pub fn as_slice(&self) -> &[Run] {
        &self.runs
    }

    /// Bytes in all runs together.
    pub fn bytes(&self) -> u64 {
        self.bytes
    }
}

fn check(name: &str, idxs: &[u32], owner: &str, region: &Region) -> Result<()> {
    // One branch-free pass finds that all is well; only a failure looks for the culprit.
    let max = idxs.iter().copied().max().unwrap_or(0);
    if u64::from(max) < region.num_blocks() {
        return Ok(());
    }
    let (at, index) = idxs
        .iter()
        .enumerate()
        .find(|(_, index)| u64::from(**index) >= region.num_blocks())
        .expect("the maximum is out of range");
    fail!(
        OutOfRange,
        "{name}[{at}] is {index}, but {owner} has {} blocks",
        region.num_blocks()
    )
}

/// A stretch of memory to move: byte offsets into the two regions.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Offset into the local region.
    pub local: u64,
    /// Offset into the remote region.
    pub remote: u64,
    /// Bytes, at least 1.
    pub len: u64,
}

/// Walks [`Runs`] in pieces. It owns the runs, so that a transfer is one value.
#[derive(Debug)]
pub struct Cursor {
    runs: Runs,
    block_len: u64,
    at: usize,
    done_in_run: u64,
}

impl Cursor {
    /// A cursor at the start of `runs`.
    pub fn new(runs: Runs, block_len: u64) -> Cursor {
        Cursor {
            runs,
            block_len,
            at: 0,
            done_in_run: 0,
        }
    }

    /// The next piece of at most `max` bytes (`max` is not 0), or `None` at the end.
    pub fn next_piece(&mut self, max: u64) -> Option<Piece> {
        let run = self.runs.runs.get(self.at)?;
        let left = u64::from(run.blocks) * self.block_len - self.done_in_run;
        let len = left.min(max);
        let piece = Piece {
            local: u64::from(run.local) * self.block_len + self.done_in_run,
            remote: u64::from(run.remote) * self.block_len + self.done_in_run,
            len,
        };
        if len == left {
            self.at += 1;
            self.done_in_run = 0;
        } else {
            self.done_in_run += len;
        }
        Some(piece)
    }

    /// True when nothing is left.
    pub fn is_done(&self) -> bool {
        self.at == self.runs.runs.len()
    }

    /// Bytes of the whole transfer.
    pub fn total_bytes(&self) -> u64 {
        self.runs.bytes
    }

    /// Runs that are not finished.
    pub fn runs_left(&self) -> usize {
        self.runs.runs.len() - self.at
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;
    use proptest::prelude::*;

    fn region(blocks: u64, len: u64) -> Region {
        Region::new(0x10000, blocks, len).unwrap()
    }

    #[test]
    fn names_the_bad_index() {
        let (l, r) = (region(512, 64), region(7, 64));
        let error = Runs::merge(&[0, 1, 2, 512], &[0, 1, 2, 3], &l, &r).unwrap_err();
        assert_eq!(error.status, Status::OutOfRange);
        assert_eq!(
            error.message,
            "local_idxs[3] is 512, but the region has 512 blocks"
        );
        let error = Runs::merge(&[0, 1], &[6, 7], &l, &r).unwrap_err();
        assert_eq!(
            error.message,
            "remote_idxs[1] is 7, but the peer's region has 7 blocks"
        );
        assert!(Runs::merge(&[511], &[6], &l, &r).is_ok());
    }

    #[test]
    fn refuses_empty_and_unequal_lists() {
        let r = region(8, 64);
        assert_eq!(
            Runs::merge(&[], &[], &r, &r).unwrap_err().status,
            Status::InvalidArg
        );
        assert_eq!(
            Runs::merge(&[1], &[1, 2], &r, &r).unwrap_err().status,
            Status::InvalidArg
        );
    }

    #[test]
    fn merges_only_what_is_contiguous_on_both_sides() {
        let r = region(100, 64);
        let runs = Runs::merge(&[1, 2, 3, 4, 9], &[5, 6, 8, 9, 10], &r, &r).unwrap();
        let expected = [(1, 5, 2), (3, 8, 2), (9, 10, 1)];
        let got: Vec<_> = runs
            .as_slice()
            .iter()
            .map(|r| (r.local, r.remote, r.blocks))
            .collect();
        assert_eq!(got, expected);
        assert_eq!(runs.bytes(), 5 * 64);
    }

    #[test]
    fn the_bytes_of_all_blocks_do_not_wrap() {
        let r = Region::new(4096, 1, 1 << 62).unwrap();
        assert_eq!(
            Runs::merge(&[0; 3], &[0; 3], &r, &r).unwrap().bytes(),
            3 << 62
        );
        let error = Runs::merge(&[0; 4], &[0; 4], &r, &r).unwrap_err();
        assert_eq!(error.status, Status::InvalidArg);
        assert!(error.message.starts_with("count is 4"), "{error}");
    }

    #[test]
    fn offsets_are_64_bit() {
        let r = Region::new(0x1000, 1 << 20, 1 << 21).unwrap();
        let runs = Runs::merge(&[4096], &[4097], &r, &r).unwrap();
        let piece = Cursor::new(runs, r.block_len()).next_piece(64).unwrap();
        assert_eq!(
            (piece.local, piece.remote),
            (1 << 33, (1 << 33) + (1 << 21))
        );
    }

    #[test]
    fn the_highest_index_does_not_wrap() {
        let r = Region::new(1, 1 << 32, 1).unwrap();
        let runs = Runs::merge(&[u32::MAX, 0], &[u32::MAX, 0], &r, &r).unwrap();
        assert_eq!(runs.as_slice().len(), 2);
    }

    proptest! {
        // Whatever the lists and the piece size: the pieces are exactly the blocks, in order.
        #[test]
        fn pieces_are_the_blocks(
            pairs in prop::collection::vec((0u32..12, 0u32..12), 1..60),
            block_len in 1u64..40,
            max in 1u64..100,
        ) {
            let (l, r): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
            let regions = region(12, block_len);
            let runs = Runs::merge(&l, &r, &regions, &regions).unwrap();
            let mut cursor = Cursor::new(runs, block_len);
            prop_assert_eq!(cursor.total_bytes(), pairs.len() as u64 * block_len);
            let mut bytes = Vec::new();
            while let Some(piece) = cursor.next_piece(max) {
                prop_assert!(piece.len >= 1 && piece.len <= max);
                bytes.extend((0..piece.len).map(|i| (piece.local + i, piece.remote + i)));
            }
            prop_assert!(cursor.is_done());
            prop_assert_eq!(cursor.runs_left(), 0);
            let expected: Vec<_> = pairs.iter().flat_map(|(l, r)| {
                (0..block_len).map(move |i| (u64::from(*l) * block_len + i, u64::from(*r) * block_len + i))
            }).collect();
            prop_assert_eq!(bytes, expected);
        }
    }
}
