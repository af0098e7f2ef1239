//! Where the blocks of a peer lie: where a formula says, or where a list says.

use std::sync::Arc;

use crate::error::{Result, fail};
use crate::region::Region;

/// The blocks of a peer, all of one length.
///
/// Every address of a block was checked: none is 0, none wraps. Cheap to clone.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Layout {
    /// One after the other: no memory is taken, however many there are.
    Uniform(Region),
    /// Each at a place of its own.
    Table(Arc<Table>),
}

/// Blocks in any order: they may have gaps between them, overlap, and be repeated.
#[derive(PartialEq, Eq, Debug)]
pub struct Table {
    addresses: Vec<u64>,
    block_len: u64,
    base: u64,
    end: u64,
}

impl Layout {
    /// Blocks of `block_len` bytes at `addresses`, of which there are at most `most`.
    ///
    /// Memory is reserved for so many at the first block that does not follow on the one before; a
    /// list without such a block becomes a formula.
    pub fn of_blocks(
        addresses: impl IntoIterator<Item = Result<u64>>,
        block_len: u64,
        most: usize,
    ) -> Result<Layout> {
        let mut table: Vec<u64> = Vec::new();
        let (mut count, mut first, mut next) = (0u64, 0, 0);
        let (mut base, mut end) = (u64::MAX, 0);
        for address in addresses {
            let address = address?;
            let after = match address.checked_add(block_len) {
                Some(after) if address != 0 => after,
                _ => fail!(
                    InvalidArg,
                    "block {count} is at {address:#x}, where {block_len} bytes have no place in 64-bit addresses"
                ),
            };
            if !table.is_empty() {
                table.push(address);
            } else if count == 0 {
                first = address;
            } else if address != next {
                if table.try_reserve_exact(most).is_err() {
                    fail!(NoMemory, "no memory to remember {most} blocks");
                }
                table.extend((0..count).map(|block| first + block * block_len));
                table.push(address);
            }
            (base, end, next) = (base.min(address), end.max(after), after);
            count += 1;
        }
        if count == 0 {
            fail!(InvalidArg, "a peer has at least one block");
        }
        if table.is_empty() {
            return Region::new(first, count, block_len).map(Layout::Uniform);
        }
        Ok(Layout::Table(Arc::new(Table {
            addresses: table,
            block_len,
            base,
            end,
        })))
    }

    /// Number of blocks, at least 1.
    pub fn num_blocks(&self) -> u64 {
        match self {
            Layout::Uniform(region) => region.num_blocks(),
            Layout::Table(table) => table.addresses.len() as u64,
        }
    }

    /// Bytes per block, at least 1.
    pub fn block_len(&self) -> u64 {
        match self {
            Layout::Uniform(region) => region.block_len(),
            Layout::Table(table) => table.block_len,
        }
    }

    /// The lowest address of a block.
    pub fn base(&self) -> u64 {
        match self {
            Layout::Uniform(region) => region.base(),
            Layout::Table(table) => table.base,
        }
    }

    /// First address after the highest block.
    pub fn end(&self) -> u64 {
        match self {
            Layout::Uniform(region) => region.end(),
            Layout::Table(table) => table.end,
        }
    }

    /// Bytes from `base` to `end`. Gaps count; nobody says that they are memory.
    pub fn span(&self) -> u64 {
        self.end() - self.base()
    }

    /// Where block `index` lies, counted from `base`.
    pub fn offset(&self, index: u32) -> u64 {
        match self {
            Layout::Uniform(region) => u64::from(index) * region.block_len(),
            Layout::Table(table) => table.addresses[index as usize] - table.base,
        }
    }
}

impl Table {
    /// Where the blocks lie, in the order of their indexes.
    pub fn addresses(&self) -> &[u64] {
        &self.addresses
    }
}

impl From<Region> for Layout {
    fn from(region: Region) -> Layout {
        Layout::Uniform(region)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;
    use proptest::prelude::*;

    fn layout(addresses: &[u64], block_len: u64) -> Result<Layout> {
        Layout::of_blocks(
            addresses.iter().copied().map(Ok),
            block_len,
            addresses.len(),
        )
    }

    #[test]
    fn blocks_in_a_row_are_a_formula() {
        let many = (0..1_000_000u64).map(|block| Ok(4096 + block * 64));
        let uniform = Layout::of_blocks(many, 64, 1_000_000).unwrap();
        assert_eq!(
            uniform,
            Region::new(4096, 1_000_000, 64).unwrap().into(),
            "whatever their number"
        );
        assert!(matches!(layout(&[5], 64).unwrap(), Layout::Uniform(_)));
    }

    #[test]
    fn other_blocks_are_a_table() {
        // A gap, an overlap, a repetition and the wrong order, each behind a row that is uniform.
        for last in [265, 250, 200, 100, 1] {
            let table = layout(&[100, 164, 200 - 7, last], 64).unwrap();
            let Layout::Table(inner) = &table else {
                panic!("{table:?}")
            };
            assert_eq!(inner.addresses(), [100, 164, 193, last]);
            assert_eq!(table.base(), last.min(100));
            assert_eq!(table.end(), (last + 64).max(257));
            assert_eq!(table.span(), table.end() - table.base());
            assert_eq!((table.num_blocks(), table.block_len()), (4, 64));
            let offsets = [0, 1, 2, 3].map(|index| table.base() + table.offset(index));
            assert_eq!(offsets, [100, 164, 193, last]);
        }
    }

    #[test]
    fn refuses_what_has_no_addresses() {
        for (addresses, named) in [
            (&[0u64, 64][..], "block 0 is at 0x0"),
            (&[64, 0], "block 1 is at 0x0"),
            (&[64, 64, 0], "block 2 is at 0x0"),
            (&[u64::MAX - 62], "block 0 is at 0xffffffffffffffc1"),
            (&[64, 4096, u64::MAX], "block 2 is at 0xffffffffffffffff"),
        ] {
            let error = layout(addresses, 64).unwrap_err();
            assert_eq!(error.status, Status::InvalidArg);
            assert!(error.message.contains(named), "{error}");
        }
        assert_eq!(layout(&[], 64).unwrap_err().status, Status::InvalidArg);
        assert_eq!(
            layout(&[u64::MAX - 64, 1], 64).unwrap().end(),
            u64::MAX,
            "the last block that has a place"
        );
    }

    #[test]
    fn a_list_that_no_memory_can_hold_is_refused() {
        let apart = [Ok(64), Ok(4096)];
        let error = Layout::of_blocks(apart, 64, usize::MAX).unwrap_err();
        assert_eq!(error.status, Status::NoMemory);
    }

    #[test]
    fn a_list_that_breaks_off_is_refused() {
        let broken = [Ok(64), Err(crate::error::Error::new(Status::Backend, "x"))];
        let error = Layout::of_blocks(broken, 64, 2).unwrap_err();
        assert_eq!(error.status, Status::Backend);
    }

    proptest! {
        // Formula or table: every block is where the list says.
        #[test]
        fn blocks_are_where_the_list_says(
            addresses in prop::collection::vec(prop_oneof![1u64..200, (1u64..20).prop_map(|i| i * 8)], 1..20),
        ) {
            let layout = layout(&addresses, 8).unwrap();
            prop_assert_eq!(layout.num_blocks(), addresses.len() as u64);
            for (index, address) in addresses.iter().enumerate() {
                prop_assert_eq!(layout.base() + layout.offset(index as u32), *address);
                prop_assert!(layout.base() <= *address && address + 8 <= layout.end());
            }
            let uniform = addresses.windows(2).all(|pair| pair[0] + 8 == pair[1]);
            prop_assert_eq!(matches!(layout, Layout::Uniform(_)), uniform);
        }
    }
}
