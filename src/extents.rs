//! From two index lists to what really has to be moved: runs of blocks that are contiguous on both
//! sides, and a cursor that hands out a transfer in pieces of bounded size.

use smallvec::SmallVec;

use crate::error::{Result, fail};
use crate::layout::Layout;
use crate::region::Region;

mod join;
mod spare;
use join::{Uniform, check, gather, listed};
pub use spare::Spare;

/// So many runs take no memory but the stack's while a transfer is submitted.
const FEW: usize = 64;

/// `blocks` blocks that lie one after the other on both sides, from local block `local` and remote
/// block `remote` on.
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

/// The merged runs of one transfer, in the order of the caller's lists. They have room of their own for
/// [`FEW`], so they are filled where they are, and not moved.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Runs {
    runs: SmallVec<[Run; FEW]>,
    bytes: u64,
    remote: Layout,
}

impl Runs {
    /// None yet, with the blocks of `remote` on the other side.
    pub fn towards(remote: Layout) -> Runs {
        Runs {
            runs: SmallVec::new(),
            bytes: 0,
            remote,
        }
    }

    /// Takes the blocks of two lists.
    ///
    /// Checks every index against its side's blocks, then merges neighbours. Remote blocks are
    /// neighbours by their addresses, whatever their indexes.
    ///
    /// An index may be repeated. Where destinations repeat, the caller finds one of the written
    /// blocks there; which one is not said.
    pub fn merge(&mut self, local_idxs: &[u32], remote_idxs: &[u32], local: &Region) -> Result<()> {
        debug_assert!(self.runs.is_empty(), "runs are merged once");
        let remote = &self.remote;
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
        let count = local_idxs.len();
        let ends = (local.num_blocks(), remote.num_blocks());
        // Each kind of layout gets a loop of its own: most are uniform, and need no addresses. What a list
        // says is read once and looked at before it is used, for another thread may write there.
        let is_whole = match remote {
            Layout::Uniform(_) => {
                let mut runs = Uniform::new(local_idxs, remote_idxs, ends);
                gather(&mut runs, count, &mut self.runs)?;
                runs.is_done()
            }
            Layout::Table(table) => {
                let addresses = table.addresses();
                let block_len = remote.block_len();
                // The sum is the end of a block of the run: it does not wrap.
                let follows = |run: &Run, next: u32| {
                    addresses[run.remote as usize] + u64::from(run.blocks) * block_len
                        == addresses[next as usize]
                };
                let mut taken = 0;
                let runs = listed(local_idxs, remote_idxs, ends, &mut taken, follows);
                gather(runs, count, &mut self.runs)?;
                taken == count
            }
        };
        if !is_whole {
            check(local_idxs, remote_idxs, local, remote)?;
            fail!(
                InvalidArg,
                "the lists of indexes change while they are read"
            );
        }
        self.bytes = bytes;
        Ok(())
    }

    /// The runs of two lists, where nothing depends on how fast it is.
    pub fn of(
        local_idxs: &[u32],
        remote_idxs: &[u32],
        local: &Region,
        remote: &Layout,
    ) -> Result<Runs> {
        let mut runs = Runs::towards(remote.clone());
        runs.merge(local_idxs, remote_idxs, local)?;
        Ok(runs)
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

/// A stretch of memory to move: byte offsets from where the two sides begin.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Piece {
    /// Offset into the local region.
    pub local: u64,
    /// Offset from the base of the remote layout.
    pub remote: u64,
    /// Bytes, at least 1.
    pub len: u64,
}

/// Walks the runs of a transfer in pieces. It owns them, so that a transfer is one value; a single run
/// takes no memory besides.
#[derive(Debug)]
pub struct Cursor {
    runs: SmallVec<[Run; 1]>,
    bytes: u64,
    remote: Layout,
    at: usize,
    done_in_run: u64,
}

impl Cursor {
    /// A cursor at the start of `runs`, with memory of its own.
    #[cfg(test)]
    pub fn new(mut runs: Runs) -> Cursor {
        Spare::default().cursor(&mut runs).unwrap()
    }

    /// The next piece of at most `max` bytes (`max` is not 0), or `None` at the end.
    pub fn next_piece(&mut self, max: u64) -> Option<Piece> {
        self.next_piece_cut(max, |_, most| most)
    }

    /// As [`next_piece`](Self::next_piece), but a piece that is not the rest of its run is as long as
    /// `cut` says, given its local offset and the most that it may be; `None` when that is nothing.
    pub fn next_piece_cut(&mut self, max: u64, cut: impl FnOnce(u64, u64) -> u64) -> Option<Piece> {
        let run = self.runs.get(self.at)?;
        let block_len = self.remote.block_len();
        let left = u64::from(run.blocks) * block_len - self.done_in_run;
        let local = u64::from(run.local) * block_len + self.done_in_run;
        let len = if left <= max { left } else { cut(local, max) };
        if len == 0 {
            return None;
        }
        let piece = Piece {
            local,
            remote: self.remote.offset(run.remote) + self.done_in_run,
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

    /// Where the next piece begins on the remote side.
    pub fn next_remote(&self) -> Option<u64> {
        let run = self.runs.get(self.at)?;
        Some(self.remote.offset(run.remote) + self.done_in_run)
    }

    /// True when nothing is left.
    pub fn is_done(&self) -> bool {
        self.at == self.runs.len()
    }

    /// Bytes of the whole transfer.
    pub fn total_bytes(&self) -> u64 {
        self.bytes
    }

    /// Runs that are not finished.
    pub fn runs_left(&self) -> usize {
        self.runs.len() - self.at
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

    /// Both sides have the same blocks.
    fn merge(local_idxs: &[u32], remote_idxs: &[u32], both: Region) -> Result<Runs> {
        Runs::of(local_idxs, remote_idxs, &both, &both.into())
    }

    fn table(addresses: &[u64], block_len: u64) -> Layout {
        let addresses = addresses.iter().copied();
        let most = addresses.len();
        let layout = Layout::of_blocks(addresses.map(Ok), block_len, most).unwrap();
        assert!(matches!(layout, Layout::Table(_)));
        layout
    }

    fn parts(runs: &Runs) -> Vec<(u32, u32, u32)> {
        let part = |run: &Run| (run.local, run.remote, run.blocks);
        runs.as_slice().iter().map(part).collect()
    }

    #[test]
    fn names_the_bad_index() {
        let (l, r) = (region(512, 64), Layout::from(region(7, 64)));
        let error = Runs::of(&[0, 1, 2, 512], &[0, 1, 2, 3], &l, &r).unwrap_err();
        assert_eq!(error.status, Status::OutOfRange);
        assert_eq!(
            error.message,
            "local_idxs[3] is 512, but the region has 512 blocks"
        );
        let error = Runs::of(&[0, 1], &[6, 7], &l, &r).unwrap_err();
        assert_eq!(
            error.message,
            "remote_idxs[1] is 7, but the peer's region has 7 blocks"
        );
        assert!(Runs::of(&[511], &[6], &l, &r).is_ok());
    }

    #[test]
    fn refuses_empty_and_unequal_lists() {
        let r = region(8, 64);
        assert_eq!(merge(&[], &[], r).unwrap_err().status, Status::InvalidArg);
        assert_eq!(
            merge(&[1], &[1, 2], r).unwrap_err().status,
            Status::InvalidArg
        );
    }

    #[test]
    fn merges_only_what_is_contiguous_on_both_sides() {
        let r = region(100, 64);
        let runs = merge(&[1, 2, 3, 4, 9], &[5, 6, 8, 9, 10], r).unwrap();
        assert_eq!(parts(&runs), [(1, 5, 2), (3, 8, 2), (9, 10, 1)]);
        assert_eq!(runs.bytes(), 5 * 64);
    }

    #[test]
    fn the_bytes_of_all_blocks_do_not_wrap() {
        let r = Region::new(4096, 1, 1 << 62).unwrap();
        assert_eq!(merge(&[0; 3], &[0; 3], r).unwrap().bytes(), 3 << 62);
        let error = merge(&[0; 4], &[0; 4], r).unwrap_err();
        assert_eq!(error.status, Status::InvalidArg);
        assert!(error.message.starts_with("count is 4"), "{error}");
    }

    #[test]
    fn offsets_are_64_bit() {
        let r = Region::new(0x1000, 1 << 20, 1 << 21).unwrap();
        let runs = merge(&[4096], &[4097], r).unwrap();
        let piece = Cursor::new(runs).next_piece(64).unwrap();
        assert_eq!(
            (piece.local, piece.remote),
            (1 << 33, (1 << 33) + (1 << 21))
        );
    }

    #[test]
    fn the_highest_index_does_not_wrap() {
        let r = Region::new(1, 1 << 32, 1).unwrap();
        let runs = merge(&[u32::MAX, 0], &[u32::MAX, 0], r).unwrap();
        assert_eq!(runs.as_slice().len(), 2);
    }

    #[test]
    fn the_blocks_of_a_list_are_neighbours_by_address() {
        let l = region(10, 64);
        // Blocks 0, 1 and 3 follow on each other in the peer's memory, though not in the list; block 2
        // does not follow on block 1; block 4 is block 0 once more.
        let r = table(&[1000, 1064, 5000, 1128, 1000], 64);
        let runs = Runs::of(&[0, 1, 2, 3, 4, 5], &[0, 1, 3, 2, 4, 1], &l, &r).unwrap();
        assert_eq!(parts(&runs), [(0, 0, 3), (3, 2, 1), (4, 4, 2)]);
        let mut cursor = Cursor::new(runs);
        let pieces: Vec<_> = std::iter::from_fn(|| cursor.next_piece(u64::MAX))
            .map(|piece| (piece.local, piece.remote, piece.len))
            .collect();
        assert_eq!(pieces, [(0, 0, 192), (192, 4000, 64), (256, 0, 128)]);
        let error = Runs::of(&[0], &[5], &l, &r).unwrap_err();
        assert_eq!(
            error.message,
            "remote_idxs[0] is 5, but the peer's region has 5 blocks"
        );
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
            let runs = merge(&l, &r, region(12, block_len)).unwrap();
            let mut cursor = Cursor::new(runs);
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

        // The same for a list, with blocks that overlap, touch and repeat; and no two pieces could
        // have been one.
        #[test]
        fn pieces_are_the_blocks_of_a_list(
            pairs in prop::collection::vec((0u32..12, 0u32..12), 1..60),
            mut addresses in prop::collection::vec((1u64..8).prop_map(|i| i * 4), 11),
            block_len in prop::sample::select(vec![4u64, 8, 12, 16]),
            max in 1u64..100,
        ) {
            // No formula makes this one.
            addresses.push(addresses[10]);
            let remote = table(&addresses, block_len);
            let (l, r): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
            let runs = Runs::of(&l, &r, &region(12, block_len), &remote).unwrap();
            for pair in runs.as_slice().windows(2) {
                let end = |start: u64, run: &Run| start + u64::from(run.blocks) * block_len;
                let local = |run: &Run| u64::from(run.local) * block_len;
                let at = |run: &Run| addresses[run.remote as usize];
                prop_assert!(
                    end(local(&pair[0]), &pair[0]) != local(&pair[1])
                        || end(at(&pair[0]), &pair[0]) != at(&pair[1])
                );
            }
            let mut cursor = Cursor::new(runs);
            let mut bytes = Vec::new();
            while let Some(piece) = cursor.next_piece(max) {
                let remote = remote.base() + piece.remote;
                bytes.extend((0..piece.len).map(|i| (piece.local + i, remote + i)));
            }
            let expected: Vec<_> = pairs.iter().flat_map(|(l, r)| {
                let (local, remote) = (u64::from(*l) * block_len, addresses[*r as usize]);
                (0..block_len).map(move |i| (local + i, remote + i))
            }).collect();
            prop_assert_eq!(bytes, expected);
        }
    }
}
