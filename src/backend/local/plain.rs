//! Copies to and from a peer's memory that is mapped in this process.

use super::copy::{Memory, Stretch};
use super::lines::Mover;
use super::streaming::{self, Queue};
use crate::backend::Direction;
use crate::extents::{Cursor, Piece};

/// Most that one step moves: so long a caller waits for it.
pub(super) const STEP_BYTES: u64 = 256 << 10;
/// Most pieces in one step: small ones cost more than their bytes.
const STEP_PIECES: usize = 64;

/// The way to a peer's blocks.
#[derive(Debug)]
pub(super) struct Plain {
    remote: Memory,
    block_len: u64,
}

impl Plain {
    /// To blocks of this length in `remote`.
    pub(super) fn new(remote: Memory, block_len: u64) -> Plain {
        Plain { remote, block_len }
    }

    /// Moves a part of a transfer.
    pub(super) fn step(&self, local: Memory, direction: Direction, cursor: &mut Cursor) {
        let mover = streaming::suitable(cursor.total_bytes(), self.block_len);
        self.step_by(mover, local, direction, cursor);
    }

    fn step_by(
        &self,
        mover: Option<Mover>,
        local: Memory,
        direction: Direction,
        cursor: &mut Cursor,
    ) {
        let stretch = |piece: Piece| match direction {
            Direction::Write => {
                Stretch::new(self.remote, piece.remote, local, piece.local, piece.len)
            }
            Direction::Read => {
                Stretch::new(local, piece.local, self.remote, piece.remote, piece.len)
            }
        };
        match mover {
            None => pieces(cursor, |_, most| most, |piece| stretch(piece).copy()),
            Some(mover) => {
                let mut queue = Queue::new(mover);
                let cut = |at, most| streaming::cut(at, most, self.block_len);
                pieces(cursor, cut, |piece| {
                    queue.push(stretch(piece), piece.local, self.block_len);
                });
                queue.finish();
            }
        }
    }
}

/// The pieces of one step. `cut` says where the last of them ends, if not with its run: see
/// [`Cursor::next_piece_cut`].
fn pieces(cursor: &mut Cursor, cut: impl Fn(u64, u64) -> u64, mut sink: impl FnMut(Piece)) {
    let mut left = STEP_BYTES;
    for _ in 0..STEP_PIECES {
        let Some(piece) = cursor.next_piece_cut(left, &cut) else {
            break;
        };
        left -= piece.len;
        sink(piece);
        if left == 0 {
            break;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::local::lines::LINE;
    use crate::extents::Runs;
    use crate::region::Region;
    use proptest::prelude::*;
    use std::hint::black_box;

    const CASES: u32 = 128;

    /// Bytes that say where they are: no two blocks are the same.
    fn filled(len: usize, seed: u32) -> Vec<u8> {
        (0..len as u32)
            .map(|at| ((at ^ seed << 28).wrapping_mul(0x9e37_79b1) >> 24) as u8)
            .collect()
    }

    /// So many blocks there are on both sides.
    fn blocks(block_len: usize) -> u32 {
        if block_len < 64 << 10 { 20 } else { 7 }
    }

    /// Where blocks begin: anywhere, and where the ends of blocks are those of no line, or of some.
    fn skip() -> impl Strategy<Value = usize> {
        prop_oneof![Just(0), Just(16), 0usize..130]
    }

    /// Runs of blocks, in a few of the same destinations.
    fn some_pairs() -> impl Strategy<Value = (usize, Vec<(u32, u32)>)> {
        let lens = prop::sample::select(vec![
            1usize, 63, 64, 65, 1024, 1025, 4096, 5000, 12_288, 20_480, 24_576, 36_864, 40_960,
            49_152, 65_536, 81_920, 98_304, 131_072, 140_001, 300_032,
        ]);
        lens.prop_flat_map(|block_len| {
            let count = blocks(block_len);
            let run = (0..count, 0u32..4, 1u32..5);
            let pairs = prop::collection::vec(run, 1..24).prop_map(move |runs| {
                let blocks = |(local, remote, len)| (0..len).map(move |i| (local + i, remote + i));
                let inside = |(local, remote): &(u32, u32)| *local < count && *remote < count;
                runs.into_iter().flat_map(blocks).filter(inside).collect()
            });
            (Just(block_len), pairs)
        })
    }

    /// The memory of `bytes` from `skip` on.
    fn memory_of(bytes: &mut [u8], skip: usize) -> Memory {
        let bytes = &mut bytes[skip..];
        // SAFETY: the tests keep `bytes` alive and look at them only between copies.
        unsafe { Memory::new(bytes.as_mut_ptr() as u64, bytes.len() as u64) }
    }

    /// The same from the start of a line on, and where that is.
    fn at_a_line(content: &[u8]) -> (Vec<u8>, usize) {
        let mut bytes: Vec<u8> = Vec::with_capacity(LINE + content.len());
        let start = bytes.as_ptr().align_offset(LINE);
        bytes.resize(start, 0);
        bytes.extend_from_slice(content);
        (bytes, start)
    }

    /// Every way of copying: destinations have the block, and one of them where there are several;
    /// everything else is as it was.
    fn check(block_len: usize, pairs: &[(u32, u32)], at: (usize, usize), read: bool) {
        let count = blocks(block_len);
        let size = count as usize * block_len;
        // The source and the destination of each pair, and where the blocks of both begin.
        let (from_at, to_at) = at;
        let (sources, targets): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
        let region = Region::new(1 << 20, count.into(), block_len as u64).unwrap();
        let old_from = filled(from_at + size + 70, 1);
        let old_to = filled(to_at + size + 70, 3);
        for mover in Mover::all().map(Some).chain([None]) {
            let (mut from, from_start) = at_a_line(&old_from);
            let (mut to, to_start) = at_a_line(&old_to);
            let source = memory_of(&mut from, from_start + from_at);
            let target = memory_of(&mut to, to_start + to_at);
            let (local, remote, direction, locals, remotes) = match read {
                true => (target, source, Direction::Read, &targets, &sources),
                false => (source, target, Direction::Write, &sources, &targets),
            };
            let runs = Runs::of(locals, remotes, &region, &region.into()).unwrap();
            let way = Plain::new(remote, block_len as u64);
            let mut cursor = Cursor::new(runs);
            while !cursor.is_done() {
                way.step_by(mover, local, direction, &mut cursor);
            }
            // Through pointers, since the compiler saw nobody write.
            let from = &black_box(&mut from)[from_start..];
            let to = &black_box(&mut to)[to_start..];
            assert!(from == old_from, "the source was changed by {mover:?}");
            let block = |at: usize, index: u32| {
                at + index as usize * block_len..at + (index as usize + 1) * block_len
            };
            for index in 0..count {
                let mut came = pairs
                    .iter()
                    .filter(|(_, target)| *target == index)
                    .peekable();
                let is = &to[block(to_at, index)];
                let fine = match came.peek() {
                    None => *is == old_to[block(to_at, index)],
                    Some(_) => came.any(|(source, _)| *is == old_from[block(from_at, *source)]),
                };
                assert!(fine, "block {index} of {block_len} bytes by {mover:?}");
            }
            assert!(to[..to_at] == old_to[..to_at]);
            assert!(to[to_at + size..] == old_to[to_at + size..]);
        }
    }

    /// Where a step ends in the middle of a block that comes twice.
    #[test]
    fn no_step_ends_inside_a_block_that_the_other_copy_has_whole() {
        let pairs = |sources: &[u32], targets: &[u32]| -> Vec<(u32, u32)> {
            sources
                .iter()
                .copied()
                .zip(targets.iter().copied())
                .collect()
        };
        for read in [false, true] {
            let unaligned = pairs(&[0, 2, 4, 6, 8, 10], &[0, 1, 2, 3, 4, 4]);
            check(48 << 10, &unaligned, (16, 16), read);
            let aligned = pairs(&[7, 8, 8, 9, 10, 11, 5, 6, 7], &[2, 3, 1, 1, 2, 3, 3, 4, 5]);
            check(40 << 10, &aligned, (0, 0), read);
        }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(CASES))]

        // Wherever blocks lie and whatever their length.
        #[test]
        fn whole_blocks_arrive(
            (block_len, pairs) in some_pairs(),
            at in (skip(), skip()),
            read in any::<bool>(),
        ) {
            check(block_len, &pairs, at, read);
        }
    }
}
