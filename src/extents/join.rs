//! One pass over two lists of indexes: their runs, and whether every index is in range.

use smallvec::SmallVec;

use super::{FEW, Run};
use crate::error::{Result, fail};
use crate::layout::Layout;
use crate::region::Region;

/// All runs of lists of so many blocks, into an empty list.
pub(super) fn gather(
    mut runs: impl Iterator<Item = Run>,
    blocks: usize,
    all: &mut SmallVec<[Run; FEW]>,
) -> Result<()> {
    all.extend(runs.by_ref().take(FEW));
    let Some(next) = runs.next() else {
        return Ok(());
    };
    let mut many = room_for(blocks)?;
    many.extend_from_slice(all);
    many.push(next);
    for run in runs {
        many.push(run);
    }
    many.shrink_to_fit();
    *all = SmallVec::from_vec(many);
    Ok(())
}

/// Memory that is reserved and not touched costs nothing; growing would copy.
fn room_for(blocks: usize) -> Result<Vec<Run>> {
    let mut room = Vec::new();
    if room.try_reserve_exact(blocks).is_err() {
        fail!(NoMemory, "no memory to remember {blocks} blocks");
    }
    Ok(room)
}

/// The runs of two lists whose blocks are neighbours by their indexes.
pub(super) struct Uniform<'a> {
    locals: &'a [u32],
    remotes: &'a [u32],
    /// Indexes are below these, on either side.
    ends: (u64, u64),
    /// The first pair that is left.
    at: usize,
}

impl<'a> Uniform<'a> {
    /// The lists are equally long.
    pub(super) fn new(locals: &'a [u32], remotes: &'a [u32], ends: (u64, u64)) -> Uniform<'a> {
        Uniform {
            locals,
            remotes: &remotes[..locals.len()],
            ends,
            at: 0,
        }
    }

    /// False at an index that is out of range, where it ends.
    pub(super) fn is_done(&self) -> bool {
        self.at == self.locals.len()
    }
}

impl Iterator for Uniform<'_> {
    type Item = Run;

    #[inline]
    fn next(&mut self) -> Option<Run> {
        let (locals, remotes) = (&self.locals[self.at..], &self.remotes[self.at..]);
        let (local, remote) = (*locals.first()?, *remotes.first()?);
        // Lists without any neighbours shall not pay for long runs.
        let blocks = match (locals.get(1), remotes.get(1)) {
            (Some(l), Some(r)) if l.wrapping_sub(local) == 1 && r.wrapping_sub(remote) == 1 => {
                neighbours(locals, remotes)
            }
            _ => 1,
        };
        let (here, there) = self.ends;
        if u64::from(local) + blocks > here || u64::from(remote) + blocks > there {
            return None;
        }
        self.at += blocks as usize;
        let blocks = blocks as u32;
        Some(Run {
            local,
            remote,
            blocks,
        })
    }
}

/// How many blocks follow on each other from the first pair on, which is there. They are fewer than 2^32,
/// and none of them is behind index 2^32 - 1.
fn neighbours(locals: &[u32], remotes: &[u32]) -> u64 {
    /// So many are compared at once, without a branch.
    const STRIDE: usize = 32;
    let (local, remote) = (locals[0], remotes[0]);
    let most = (u32::MAX - local.max(remote)).min(u32::MAX - 1) as usize;
    let locals = &locals[1..locals.len().min(1 + most)];
    let remotes = &remotes[1..remotes.len().min(1 + most)];
    let mut more = 0;
    let strides = locals
        .chunks_exact(STRIDE)
        .zip(remotes.chunks_exact(STRIDE));
    for (locals, remotes) in strides {
        let next = more as u32 + 1;
        let mut differ = 0;
        for (i, (l, r)) in (0..).zip(locals.iter().zip(remotes)) {
            differ |= l ^ (local + next).wrapping_add(i);
            differ |= r ^ (remote + next).wrapping_add(i);
        }
        if differ != 0 {
            break;
        }
        more += STRIDE;
    }
    let rest = locals[more..].iter().zip(&remotes[more..]);
    let follows = |i: u32, l: u32, r: u32| l == local + i && r == remote + i;
    let rest = (more as u32 + 1..)
        .zip(rest)
        .take_while(|(i, (l, r))| follows(*i, **l, **r));
    (1 + more + rest.count()) as u64
}

/// The runs of two lists of indexes, up to the first one that is out of range; `taken` pairs are in them.
/// `follows` says whether a remote block lies right behind a run.
pub(super) fn listed(
    local_idxs: &[u32],
    remote_idxs: &[u32],
    (here, there): (u64, u64),
    taken: &mut usize,
    follows: impl Fn(&Run, u32) -> bool,
) -> impl Iterator<Item = Run> {
    let pairs = local_idxs.iter().copied().zip(remote_idxs.iter().copied());
    let mut pairs = pairs
        .take_while(move |(local, remote)| u64::from(*local) < here && u64::from(*remote) < there)
        .inspect(|_| *taken += 1)
        .peekable();
    std::iter::from_fn(move || {
        let (local, remote) = pairs.next()?;
        let mut run = Run {
            local,
            remote,
            blocks: 1,
        };
        // 64-bit sums: a run may end at index 2^32 - 1.
        let follows = |run: &Run, (local, remote): (u32, u32)| {
            u64::from(run.local) + u64::from(run.blocks) == u64::from(local)
                && follows(run, remote)
                && run.blocks < u32::MAX
        };
        while pairs.next_if(|pair| follows(&run, *pair)).is_some() {
            run.blocks += 1;
        }
        Some(run)
    })
}

/// Local ones are looked at first.
pub(super) fn check(
    local_idxs: &[u32],
    remote_idxs: &[u32],
    local: &Region,
    remote: &Layout,
) -> Result<()> {
    check_side("local_idxs", local_idxs, "the region", local.num_blocks())?;
    let end = remote.num_blocks();
    check_side("remote_idxs", remote_idxs, "the peer's region", end)
}

fn check_side(name: &str, idxs: &[u32], owner: &str, num_blocks: u64) -> Result<()> {
    let bad = |(_, index): &(usize, &u32)| u64::from(**index) >= num_blocks;
    let Some((at, index)) = idxs.iter().enumerate().find(bad) else {
        return Ok(());
    };
    fail!(
        OutOfRange,
        "{name}[{at}] is {index}, but {owner} has {num_blocks} blocks"
    )
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;
    use proptest::prelude::*;

    fn runs_of(locals: &[u32], remotes: &[u32], ends: (u64, u64)) -> Option<Vec<Run>> {
        let mut runs = Uniform::new(locals, remotes, ends);
        let mut found = SmallVec::new();
        gather(&mut runs, locals.len(), &mut found).unwrap();
        runs.is_done().then(|| found.to_vec())
    }

    /// The same, pair by pair.
    fn slowly(locals: &[u32], remotes: &[u32]) -> Vec<Run> {
        let mut runs: Vec<Run> = Vec::new();
        for (&local, &remote) in locals.iter().zip(remotes) {
            let end = |start: u32, run: &Run| u64::from(start) + u64::from(run.blocks);
            match runs.last_mut() {
                Some(run)
                    if end(run.local, run) == u64::from(local)
                        && end(run.remote, run) == u64::from(remote) =>
                {
                    run.blocks += 1
                }
                _ => runs.push(Run {
                    local,
                    remote,
                    blocks: 1,
                }),
            }
        }
        runs
    }

    #[test]
    fn a_list_that_no_memory_can_hold_is_refused() {
        let refused = room_for(usize::MAX).unwrap_err();
        assert_eq!(refused.status, Status::NoMemory);
    }

    #[test]
    fn no_run_goes_on_behind_the_last_index() {
        for blocks in [1, 2, 32, 33, 65] {
            let first = u32::MAX - (blocks - 1);
            let list: Vec<u32> = (first..=u32::MAX).chain(0..100).collect();
            let runs = runs_of(&list, &list, (1 << 32, 1 << 32)).unwrap();
            assert_eq!(
                runs.iter().map(|run| u64::from(run.blocks)).sum::<u64>(),
                u64::from(blocks) + 100
            );
            for run in &runs {
                let end = u64::from(run.local) + u64::from(run.blocks);
                assert!(end <= 1 << 32, "{run:?}");
            }
        }
    }

    proptest! {
        // Stretches that go up on both sides, of lengths around those that are compared at once, and what
        // goes up on one side only.
        #[test]
        fn runs_are_found_whole(
            stretches in prop::collection::vec((0u32..500, 0u32..500, 1usize..100, 0u32..3, 0u32..3), 1..20),
            extra in 0u64..3,
        ) {
            let (mut locals, mut remotes) = (Vec::new(), Vec::new());
            for (local, remote, blocks, here, there) in stretches {
                // Steps of 1 for the most part.
                let step = |way| if way == 0 { 2 } else { 1 };
                let steps = 0..blocks as u32;
                locals.extend(steps.clone().map(|i| local + i * step(here)));
                remotes.extend(steps.map(|i| remote + i * step(there)));
            }
            let end = |list: &[u32]| u64::from(*list.iter().max().unwrap()) + 1;
            let (l, r) = (end(&locals), end(&remotes));
            let found = runs_of(&locals, &remotes, (l + extra, r + extra));
            prop_assert_eq!(found, Some(slowly(&locals, &remotes)));
            prop_assert_eq!(runs_of(&locals, &remotes, (l - 1, r)), None);
            prop_assert_eq!(runs_of(&locals, &remotes, (l, r - 1)), None);
        }
    }
}
