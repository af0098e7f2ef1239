//! Memory for the runs of transfers, which is used again: a transfer of few runs allocates nothing.

use smallvec::{SmallVec, smallvec};

use super::{Cursor, FEW, Run, Runs};
use crate::error::{Result, fail};

/// Places of this memory have room for so many runs. More runs have memory of their own.
const SIZES: [usize; 3] = [4, 16, FEW];

/// So many places of a size are kept, all in all 1,032,192 bytes at most and 72 KiB of headers: what more
/// transfers at once have taken is given back.
const KEPT: usize = 1024;

/// Places that no transfer uses now.
#[derive(Debug, Default)]
pub struct Spare {
    places: [Vec<Vec<Run>>; SIZES.len()],
}

impl Spare {
    /// A cursor at the start of `runs`, which it takes when they are many.
    pub fn cursor(&mut self, runs: &mut Runs) -> Result<Cursor> {
        let (bytes, remote) = (runs.bytes, runs.remote.clone());
        let runs = match &runs.runs[..] {
            [run] => smallvec![*run],
            few if few.len() <= FEW => {
                let mut place = self.place(few.len())?;
                place.extend_from_slice(few);
                SmallVec::from_vec(place)
            }
            _ => SmallVec::from_vec(std::mem::take(&mut runs.runs).into_vec()),
        };
        Ok(Cursor {
            runs,
            bytes,
            remote,
            at: 0,
            done_in_run: 0,
        })
    }

    /// The transfer has ended: its place may be used again.
    pub fn take_back(&mut self, cursor: Cursor) {
        if !cursor.runs.spilled() {
            return;
        }
        let mut place = cursor.runs.into_vec();
        let size = SIZES.iter().position(|size| *size == place.capacity());
        if let Some(size) = size
            && self.places[size].len() < KEPT
        {
            place.clear();
            self.places[size].push(place);
        }
    }

    fn place(&mut self, runs: usize) -> Result<Vec<Run>> {
        let size = SIZES.iter().position(|size| runs <= *size);
        let size = size.expect("more runs have memory of their own");
        if let Some(place) = self.places[size].pop() {
            return Ok(place);
        }
        let mut place = Vec::new();
        if place.try_reserve_exact(SIZES[size]).is_err() {
            fail!(NoMemory, "no memory to remember {runs} runs of blocks");
        }
        Ok(place)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Region;

    /// So many runs of one block.
    fn runs(count: u32) -> Runs {
        let region = Region::new(4096, 1000, 8).unwrap();
        let idxs: Vec<u32> = (0..count).map(|i| 2 * i).collect();
        Runs::of(&idxs, &idxs, &region, &region.into()).unwrap()
    }

    fn kept(spare: &Spare) -> [usize; 3] {
        [0, 1, 2].map(|size| spare.places[size].len())
    }

    #[test]
    fn places_are_used_again() {
        let mut spare = Spare::default();
        for (count, places) in [
            (1, [0, 0, 0]),
            (2, [1, 0, 0]),
            (4, [1, 0, 0]),
            (5, [1, 1, 0]),
            (64, [1, 1, 1]),
            (17, [1, 1, 1]),
            (65, [1, 1, 1]),
        ] {
            let mut cursor = spare.cursor(&mut runs(count)).unwrap();
            assert_eq!(cursor.total_bytes(), u64::from(count) * 8);
            let pieces = std::iter::from_fn(|| cursor.next_piece(u64::MAX));
            let locals: Vec<u64> = pieces.map(|piece| piece.local).collect();
            let wanted: Vec<u64> = (0..u64::from(count)).map(|i| 16 * i).collect();
            assert_eq!(locals, wanted);
            spare.take_back(cursor);
            assert_eq!(kept(&spare), places);
        }
    }

    #[test]
    fn what_a_burst_took_is_given_back() {
        let mut spare = Spare::default();
        let all: Vec<Cursor> = (0..3 * KEPT)
            .map(|_| spare.cursor(&mut runs(2)).unwrap())
            .collect();
        for cursor in all {
            spare.take_back(cursor);
        }
        assert_eq!(kept(&spare), [KEPT, 0, 0]);
    }
}
