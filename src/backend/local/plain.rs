//! Copies to and from a peer's memory that is mapped in this process.

use super::copy::{Memory, Stretch};
use super::lines::Mover;
use super::streaming::{self, Queue};
use crate::backend::Direction;
use crate::extents::{Cursor, Piece};

/// Most that one step moves: so long a caller waits for it.
const STEP_BYTES: u64 = 256 << 10;
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
            None => pieces(cursor, |piece| stretch(piece).copy()),
            Some(mover) => {
                let mut queue = Queue::new(mover);
                pieces(cursor, |piece| {
                    queue.push(stretch(piece), piece.local, self.block_len);
                });
                queue.finish();
            }
        }
    }
}

/// The pieces of one step.
fn pieces(cursor: &mut Cursor, mut sink: impl FnMut(Piece)) {
    let mut left = STEP_BYTES;
    for _ in 0..STEP_PIECES {
        let Some(piece) = cursor.next_piece(left) else {
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
    use crate::extents::Runs;
    use crate::region::Region;
    use proptest::prelude::*;
    use std::hint::black_box;

    /// Bytes that say where they are.
    fn filled(len: usize, seed: usize) -> Vec<u8> {
        (0..len)
            .map(|i| (i * 7 + i / 256 * 13 + seed) as u8)
            .collect()
    }

    /// The memory of `bytes` from `skip` on.
    fn memory_of(bytes: &mut [u8], skip: usize) -> Memory {
        let bytes = &mut bytes[skip..];
        // SAFETY: the tests keep `bytes` alive and look at them only between copies.
        unsafe { Memory::new(bytes.as_mut_ptr() as u64, bytes.len() as u64) }
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        // Every way of copying, wherever blocks lie and whatever their length: destinations have the
        // block, and one of them where there are several; everything else is as it was.
        #[test]
        fn whole_blocks_arrive(
            block_len in prop::sample::select(vec![
                1usize, 63, 64, 65, 1024, 1025, 4096, 5000, 65_536, 98_304, 131_072, 140_001, 300_032,
            ]),
            pairs in prop::collection::vec((0u32..7, 0u32..7), 1..30),
            ascending in any::<bool>(),
            (here_at, there_at) in (0usize..130, 0usize..130),
            read in any::<bool>(),
        ) {
            let mut pairs = pairs;
            if ascending {
                // Runs.
                pairs.sort();
            }
            let (locals, remotes): (Vec<u32>, Vec<u32>) = pairs.iter().copied().unzip();
            let region = Region::new(1 << 20, 7, block_len as u64).unwrap();
            let runs = Runs::merge(&locals, &remotes, &region, &region.into()).unwrap();
            for mover in Mover::all().map(Some).chain([None]) {
                let mut here = filled(here_at + 7 * block_len + 70, 1);
                let mut there = filled(there_at + 7 * block_len + 70, 3);
                let (old_here, old_there) = (here.clone(), there.clone());
                let local = memory_of(&mut here, here_at);
                let way = Plain::new(memory_of(&mut there, there_at), block_len as u64);
                let direction = if read { Direction::Read } else { Direction::Write };
                let mut cursor = Cursor::new(runs.clone());
                while !cursor.is_done() {
                    way.step_by(mover, local, direction, &mut cursor);
                }
                // Through pointers, since the compiler saw nobody write.
                let (here, there) = (&*black_box(&mut here), &*black_box(&mut there));
                let (to, to_at, old_to) = if read { (here, here_at, &old_here) } else { (there, there_at, &old_there) };
                let (from, from_at, old_from) = if read { (there, there_at, &old_there) } else { (here, here_at, &old_here) };
                prop_assert!(from == old_from, "the source was changed by {mover:?}");
                let block = |bytes: &'_ [u8], at: usize, index: u32| {
                    let start = at + index as usize * block_len;
                    bytes[start..start + block_len].to_vec()
                };
                for index in 0..7 {
                    let mut came: Vec<u32> = pairs
                        .iter()
                        .map(|(local, remote)| if read { (*remote, *local) } else { (*local, *remote) })
                        .filter_map(|(source, target)| (target == index).then_some(source))
                        .collect();
                    came.dedup();
                    let is = block(to, to_at, index);
                    let fine = match came.is_empty() {
                        true => is == block(old_to, to_at, index),
                        false => came.iter().any(|source| is == block(old_from, from_at, *source)),
                    };
                    prop_assert!(fine, "block {index} by {mover:?}");
                }
                prop_assert!(to[..to_at] == old_to[..to_at]);
                prop_assert!(to[to_at + 7 * block_len..] == old_to[to_at + 7 * block_len..]);
            }
        }
    }
}
