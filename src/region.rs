//! Block geometry: where block *i* of a region lies. All arithmetic is 64-bit and checked once, when
//! the region is made; after that no index below `num_blocks` can overflow.

use crate::error::{Result, fail};

/// `num_blocks` blocks of `block_len` bytes, block *i* at `base + i * block_len`.
///
/// Describes local memory as well as a peer's; it is never an address to dereference by itself.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Region {
    base: u64,
    num_blocks: u64,
    block_len: u64,
}

impl Region {
    /// A region, if the last byte of its last block has an address.
    pub fn new(base: u64, num_blocks: u64, block_len: u64) -> Result<Region> {
        if base == 0 {
            fail!(InvalidArg, "the base address of the region is 0");
        }
        if num_blocks == 0 {
            fail!(
                InvalidArg,
                "num_blocks is 0, but a region has at least one block"
            );
        }
        if block_len == 0 {
            fail!(
                InvalidArg,
                "block_len is 0, but a block has at least one byte"
            );
        }
        let end = num_blocks
            .checked_mul(block_len)
            .and_then(|bytes| base.checked_add(bytes));
        if end.is_none() {
            fail!(
                InvalidArg,
                "{num_blocks} blocks of {block_len} bytes at {base:#x} go beyond the 64-bit address space"
            );
        }
        Ok(Region {
            base,
            num_blocks,
            block_len,
        })
    }

    /// Address of block 0.
    pub fn base(&self) -> u64 {
        self.base
    }

    /// Number of blocks, at least 1.
    pub fn num_blocks(&self) -> u64 {
        self.num_blocks
    }

    /// Bytes per block, at least 1.
    pub fn block_len(&self) -> u64 {
        self.block_len
    }

    /// Bytes of the whole region.
    pub fn bytes(&self) -> u64 {
        self.num_blocks * self.block_len
    }

    /// First address after the region.
    pub fn end(&self) -> u64 {
        self.base + self.bytes()
    }

    /// True when every byte of `inner` is one of this region.
    pub fn covers(&self, inner: &Region) -> bool {
        self.base <= inner.base && inner.end() <= self.end()
    }
}

/// A region of this process that transports may read and write: the caller's memory.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct LocalRegion(Region);

impl LocalRegion {
    /// The promise that `region` is memory; whoever has a `LocalRegion` relies on it.
    ///
    /// # Safety
    ///
    /// Every byte of `region` stays mapped until each transport over it was closed, or dropped.
    /// Others may read and write it at any time: no Rust reference to it exists.
    pub unsafe fn new(region: Region) -> LocalRegion {
        LocalRegion(region)
    }

    /// Where its blocks lie.
    pub fn blocks(&self) -> Region {
        self.0
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;

    #[test]
    fn refuses_what_has_no_addresses() {
        for (base, num, len) in [
            (0, 1, 1),
            (4096, 0, 1),
            (4096, 1, 0),
            (4096, u64::MAX, 2),
            (u64::MAX - 4095, 1, 4096),
            (1, 1 << 32, 1 << 32),
        ] {
            assert_eq!(
                Region::new(base, num, len).unwrap_err().status,
                Status::InvalidArg
            );
        }
        let last = Region::new(u64::MAX - 4096, 1, 4096).unwrap();
        assert_eq!(last.end(), u64::MAX);
    }

    #[test]
    fn sizes_are_64_bit() {
        let region = Region::new(0x1000, 1 << 20, 1 << 21).unwrap();
        assert_eq!(region.bytes(), 1 << 41);
    }

    #[test]
    fn covers_is_exact() {
        let outer = Region::new(4096, 16, 64).unwrap();
        assert!(outer.covers(&outer));
        assert!(outer.covers(&Region::new(4097, 15, 64).unwrap()));
        assert!(!outer.covers(&Region::new(4097, 16, 64).unwrap()));
        assert!(!outer.covers(&Region::new(4095, 16, 64).unwrap()));
    }
}
