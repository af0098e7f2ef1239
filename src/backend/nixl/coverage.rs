//! What a peer registered with NIXL, as it concerns its blocks.
//!
//! NIXL finds a stretch of memory only inside a single registration. Blocks that follow on each
//! other can lie in several: what is moved as one run is cut where a registration ends.

use crate::layout::Layout;

/// The registrations of a peer, and where its blocks begin.
pub struct Coverage {
    base: u64,
    /// Start and end, by start. Each ends after those before it.
    regions: Vec<(u64, u64)>,
}

impl Coverage {
    /// Pieces of `remote` lie in `regions`, each given by its start and its end.
    ///
    /// `Err`: the index and the address of the first block that lies in none.
    pub fn new(regions: &[(u64, u64)], remote: &Layout) -> Result<Coverage, (u64, u64)> {
        let mut sorted = regions.to_vec();
        sorted.sort_unstable();
        let mut furthest = 0;
        // One that ends no later than one that starts no later is of no use.
        sorted.retain(|&(_, end)| {
            let further = end > furthest;
            furthest = furthest.max(end);
            further
        });
        let coverage = Coverage {
            base: remote.base(),
            regions: sorted,
        };
        match coverage.first_outside(remote) {
            None => Ok(coverage),
            Some(block) => Err(block),
        }
    }

    /// Address and length of each part of the `len` bytes at `offset` from the base.
    pub fn parts(&self, offset: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
        let mut at = self.base + offset;
        let end = at + len;
        std::iter::from_fn(move || {
            // Every byte of a block is registered, so this gets on.
            let part = end.min(self.end_of(at)).checked_sub(at)?;
            let found = (at, part);
            at += part;
            (part > 0).then_some(found)
        })
    }

    /// How many bytes from `offset` from the base on lie in one registration.
    pub fn whole_from(&self, offset: u64) -> u64 {
        let at = self.base + offset;
        self.end_of(at) - at
    }

    /// Where the registration ends that reaches furthest from `address` on; `address` when none holds it.
    fn end_of(&self, address: u64) -> u64 {
        let after = self.regions.partition_point(|&(start, _)| start <= address);
        let furthest = after.checked_sub(1).map_or(0, |last| self.regions[last].1);
        furthest.max(address)
    }

    fn first_outside(&self, remote: &Layout) -> Option<(u64, u64)> {
        let len = remote.block_len();
        match remote {
            // In strides of one registration: their number counts, not that of the blocks.
            Layout::Uniform(region) => {
                let mut block = 0;
                while block < region.num_blocks() {
                    let at = region.base() + block * len;
                    match (self.end_of(at) - at) / len {
                        0 => return Some((block, at)),
                        blocks => block += blocks,
                    }
                }
                None
            }
            Layout::Table(table) => (0..)
                .zip(table.addresses().iter().copied())
                .find(|&(_, at)| self.end_of(at) - at < len),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::region::Region;
    use proptest::prelude::*;

    fn table(addresses: &[u64], block_len: u64) -> Layout {
        let most = addresses.len();
        Layout::of_blocks(addresses.iter().copied().map(Ok), block_len, most).unwrap()
    }

    #[test]
    fn a_formula_is_checked_in_strides() {
        let many = Region::new(4096, 1 << 40, 1 << 10).unwrap();
        let all = [(4096, many.end())];
        assert!(Coverage::new(&all, &many.into()).is_ok());
        let last = many.end() - 1024;
        assert_eq!(
            Coverage::new(&[(4096, many.end() - 1)], &many.into()).err(),
            Some(((1 << 40) - 1, last))
        );
    }

    #[test]
    fn runs_are_cut_where_registrations_meet() {
        let regions = [(3000, 4000), (1000, 2000), (2000, 3000), (1500, 1600)];
        let remote = Region::new(1000, 30, 100).unwrap().into();
        let coverage = Coverage::new(&regions, &remote).unwrap();
        let parts = |offset, len| coverage.parts(offset, len).collect::<Vec<_>>();
        assert_eq!(parts(0, 1000), [(1000, 1000)]);
        assert_eq!(parts(550, 1), [(1550, 1)]);
        assert_eq!(parts(900, 2100), [(1900, 100), (2000, 1000), (3000, 1000)]);
        assert_eq!(parts(100, 3900), parts(100, 2900), "never beyond");
        // A block that none holds whole.
        let across = table(&[1000, 3000, 1950], 100);
        assert_eq!(Coverage::new(&regions, &across).err(), Some((2, 1950)));
    }

    proptest! {
        // Against the definition: each block lies in one region; the parts of any stretch of blocks
        // are its bytes in order, and each lies in one region.
        #[test]
        fn blocks_and_parts_lie_in_one_region(
            regions in prop::collection::vec((1u64..60, 1u64..30), 1..6),
            addresses in prop::collection::vec(1u64..60, 1..6),
            uniform in any::<bool>(),
            block_len in 1u64..12,
        ) {
            let regions: Vec<_> = regions.iter().map(|(start, len)| (*start, start + len)).collect();
            let inside = |at: u64, len: u64| regions.iter().any(|(start, end)| *start <= at && at + len <= *end);
            let (addresses, remote) = if uniform {
                let blocks = addresses.len() as u64;
                let region = Region::new(addresses[0], blocks, block_len).unwrap();
                ((0..blocks).map(|i| addresses[0] + i * block_len).collect(), region.into())
            } else {
                (addresses.clone(), table(&addresses, block_len))
            };
            let outside = addresses.iter().position(|at| !inside(*at, block_len));
            let outside = outside.map(|i| (i as u64, addresses[i]));
            match Coverage::new(&regions, &remote) {
                Err(block) => prop_assert_eq!(Some(block), outside),
                Ok(coverage) => {
                    prop_assert_eq!(outside, None);
                    let blocks = if uniform { addresses.len() as u64 } else { 1 };
                    let mut at = addresses[0];
                    let end = at + blocks * block_len;
                    for (address, len) in coverage.parts(at - remote.base(), end - at) {
                        prop_assert_eq!(address, at);
                        prop_assert!(inside(address, len) && len > 0);
                        at += len;
                    }
                    prop_assert_eq!(at, end);
                }
            }
        }
    }
}
