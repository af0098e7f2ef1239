//! The three ways to a peer's memory, and the copying through each.

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};

use super::copy::Memory;
use super::errno::status_of;
use super::foreign::{Kind, open_memory};
use super::mapping::{Mapping, page_size};
use super::maps::{self, Backing};
use super::metadata::{Metadata, RegionFile};
use super::plain::Plain;
use super::process_vm::ProcessVm;
use super::registry;
use crate::backend::Direction;
use crate::error::{Error, Result, fail};
use crate::extents::Cursor;
use crate::layout::Layout;
use crate::region::{LocalRegion, Region};

/// A way to the peer's memory. Using it is right only while the peer's gate holds the memory.
#[derive(Debug)]
pub(super) enum Reach {
    /// The peer is a transport of this process.
    SameProcess(Plain),
    /// The peer's memory is mapped here.
    Mapped {
        /// To the peer's range in this address space.
        way: Plain,
        /// What keeps it there.
        _mapping: Mapping,
    },
    /// The kernel copies between the two address spaces.
    ProcessVm(ProcessVm),
}

impl Reach {
    /// A way to `remote`, blocks in the region of `peer`, another process. Also says why the
    /// way was chosen.
    pub(super) fn open(peer: &Metadata, remote: &Layout) -> Result<(Reach, String)> {
        let why = match &peer.region_file {
            None => "it has no file descriptor".to_owned(),
            Some(file) => match map(peer, file, remote) {
                Ok(reach) => return Ok((reach, "the peer's memory is mapped".to_owned())),
                Err(error) => format!("it cannot be mapped: {error}"),
            },
        };
        match ProcessVm::open(peer.process.pid(), peer.fuse, remote) {
            Ok(way) => Ok((
                Reach::ProcessVm(way),
                format!("the peer's memory is copied by process_vm, as {why}"),
            )),
            Err(error) => Err(Error::new(
                error.status,
                format!("{}; {why}", error.message),
            )),
        }
    }

    /// True when a step goes to whatever program the peer's process runs at that time. What is
    /// mapped, in contrast, stays the peer's memory.
    pub(super) fn follows_process(&self) -> bool {
        matches!(self, Reach::ProcessVm(_))
    }

    /// Moves a part of a transfer that is small enough to be waited for. The caller holds a pass of
    /// the peer's gate.
    pub(super) fn step(
        &self,
        local: Memory,
        direction: Direction,
        cursor: &mut Cursor,
    ) -> Result<()> {
        match self {
            Reach::SameProcess(way) | Reach::Mapped { way, .. } => {
                way.step(local, direction, cursor);
                Ok(())
            }
            Reach::ProcessVm(way) => way.step(local, direction, cursor),
        }
    }
}

/// Maps just the pages from the lowest block of `remote` to the highest.
fn map(peer: &Metadata, region: &RegionFile, remote: &Layout) -> Result<Reach> {
    let (file, kind) = open_memory(peer.process.pid(), region.file, "the region's file")?;
    let refused = |errno: rustix::io::Errno| Error::new(status_of(errno), errno.to_string());
    // Without the seal the peer could cut the file short, and a copy would end in SIGBUS.
    if !fcntl_get_seals(&file)
        .map_err(refused)?
        .contains(SealFlags::SHRINK)
    {
        fail!(
            Unavailable,
            "its file is not sealed against shrinking (F_SEAL_SHRINK)"
        );
    }
    let stat = fstat(&file).map_err(refused)?;
    // Both sums were checked when the metadata was: the region lies in its file without wrapping.
    let start = region.offset + (remote.base() - peer.region.base());
    let end = start + remote.span();
    if (stat.st_size as u64) < end {
        fail!(
            Incompatible,
            "its file has {} bytes, but the peer's range ends at {end}",
            stat.st_size
        );
    }
    let page = match kind {
        Kind::Plain => page_size(),
        Kind::Huge => (stat.st_blksize as u64).max(page_size()),
    };
    let first = start - start % page;
    // A part of a huge page can be mapped, but not unmapped.
    let len = (end.next_multiple_of(page) - first) as usize;
    let mapping = match kind {
        Kind::Plain => Mapping::for_huge_pages(&file, first, len),
        Kind::Huge => Mapping::anywhere(&file, first, len),
    };
    let mapping = mapping.map_err(refused)?;
    let address = mapping.address() as u64 + (start - first);
    // SAFETY: the mapping has these bytes, readable and writable; the file cannot shrink below
    // them; and the mapping lives as long as the `Reach` whose copies use it.
    let memory = unsafe { Memory::new(address, remote.span()) };
    Ok(Reach::Mapped {
        way: Plain::new(memory, remote.block_len()),
        _mapping: mapping,
    })
}

/// The memory of a transport's own region, if it is there; see [`maps::check`].
pub(super) fn own_memory(region: LocalRegion, backing: Option<Backing>) -> Result<Memory> {
    let region = region.blocks();
    maps::check(&region, backing)?;
    // SAFETY: it is mapped, readable and writable, and by the promise of `LocalRegion` it stays so
    // until the transport is closed; a closed transport copies nothing.
    Ok(unsafe { Memory::new(region.base(), region.bytes()) })
}

/// A way to `remote`, blocks in the region of a transport of this process: it is simply there.
pub(super) fn same_process(peer: &registry::Entry, remote: &Layout) -> Result<Reach> {
    check_range(&peer.region, remote)?;
    // SAFETY: the transport found its region mapped, readable and writable. Its owner keeps it so
    // until the gate is shut and nobody is inside, and copies are made only with a pass of the gate.
    let memory = unsafe { Memory::new(remote.base(), remote.span()) };
    Ok(Reach::SameProcess(Plain::new(memory, remote.block_len())))
}

/// Refuses blocks that are not all in the peer's region, and a range that does not consist of its
/// blocks. (A list says of each block where it is: there it may be anywhere in the region.)
pub(super) fn check_range(region: &Region, remote: &Layout) -> Result<()> {
    let (start, end) = (region.base(), region.end());
    let block_len = region.block_len();
    match remote {
        Layout::Uniform(range) if !region.covers(range) => fail!(
            Incompatible,
            "the peer's range {:#x} to {:#x}, base_addr and num_blocks, is outside the region {start:#x} to {end:#x} \
             of its metadata",
            range.base(),
            range.end()
        ),
        Layout::Table(table) if remote.base() < start || end < remote.end() => {
            // Both sums were checked: the region and each block end below 2^64.
            let outside = |at: &u64| *at < start || end < *at + remote.block_len();
            let index = table.addresses().iter().position(outside).unwrap_or(0);
            fail!(
                Incompatible,
                "block {index} of the peer, at {:#x}, is outside the region {start:#x} to {end:#x} of its metadata",
                table.addresses()[index]
            )
        }
        _ => {}
    }
    if remote.block_len() != block_len {
        fail!(
            Incompatible,
            "block_len is {}, but the peer's own is {block_len}",
            remote.block_len()
        );
    }
    let Layout::Uniform(range) = remote else {
        return Ok(());
    };
    let past = (range.base() - start) % block_len;
    if past != 0 {
        fail!(
            Incompatible,
            "base_addr is {:#x}, which is {past} bytes past the start of one of the peer's blocks: they have \
             {block_len} bytes each, from {start:#x} on",
            range.base()
        );
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::backend::local::fuse::Fuse;
    use crate::backend::local::plain;
    use crate::extents::Runs;
    use proptest::prelude::*;
    use std::process::id;

    fn memory_of(bytes: &mut [u8]) -> Memory {
        // SAFETY: the tests keep `bytes` alive and look at them only between copies.
        unsafe { Memory::new(bytes.as_mut_ptr() as u64, bytes.len() as u64) }
    }

    fn region_of(bytes: &[u8], block_len: u64) -> Region {
        Region::new(
            bytes.as_ptr() as u64,
            bytes.len() as u64 / block_len,
            block_len,
        )
        .unwrap()
    }

    proptest! {
        #![proptest_config(ProptestConfig::with_cases(48))]

        // Every way moves the same bytes, in both directions, and none besides them.
        #[test]
        fn all_ways_move_the_blocks(
            (locals, remotes) in (1usize..40).prop_flat_map(|n| (
                Just((0..40u32).collect::<Vec<_>>()).prop_shuffle().prop_map(move |v| v[..n].to_vec()),
                Just((0..40u32).collect::<Vec<_>>()).prop_shuffle().prop_map(move |v| v[..n].to_vec()),
            )),
            block_len in prop::sample::select(vec![1u64, 7, 4096, 70_000]),
            read in any::<bool>(),
            by_kernel in any::<bool>(),
        ) {
            let len = 40 * block_len as usize;
            let mut here: Vec<u8> = (0..len).map(|i| (i * 7 + i / 256) as u8).collect();
            let mut there: Vec<u8> = (0..len).map(|i| (i * 11 + i / 251 + 3) as u8).collect();
            let (mut want_here, mut want_there) = (here.clone(), there.clone());
            let n = block_len as usize;
            for (l, r) in locals.iter().zip(&remotes) {
                let (l, r) = (*l as usize * n, *r as usize * n);
                if read {
                    want_here[l..l + n].copy_from_slice(&there[r..r + n]);
                } else {
                    want_there[r..r + n].copy_from_slice(&here[l..l + n]);
                }
            }
            let (local, remote) = (region_of(&here, block_len), region_of(&there, block_len));
            let runs = Runs::of(&locals, &remotes, &local, &remote.into()).unwrap();
            let mut cursor = Cursor::new(runs);
            let fuse = Fuse::create().unwrap();
            let way = if by_kernel {
                Reach::ProcessVm(ProcessVm::open(id(), fuse.address(), &remote.into()).unwrap())
            } else {
                Reach::SameProcess(Plain::new(memory_of(&mut there), block_len))
            };
            let memory = memory_of(&mut here);
            let direction = if read { Direction::Read } else { Direction::Write };
            let mut steps = 0;
            while !cursor.is_done() {
                way.step(memory, direction, &mut cursor).unwrap();
                steps += 1;
            }
            let bytes = locals.len() as u64 * block_len;
            // A step may end up to one block before it is full, since it ends with a whole one.
            let least = plain::STEP_BYTES - block_len;
            prop_assert!(steps <= bytes / least + locals.len() as u64 / 64 + 2);
            // Through the pointers, since the compiler saw nobody write.
            prop_assert!(std::hint::black_box(&mut here) == &want_here);
            prop_assert!(std::hint::black_box(&mut there) == &want_there);
        }
    }
}
