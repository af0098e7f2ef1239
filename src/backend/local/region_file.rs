//! The file that a transport's own region is a mapping of, as the caller says, and what it is good
//! for: peers can map a memory file, and nothing else.

use std::os::fd::{AsRawFd, OwnedFd, RawFd};

use rustix::fs::{SealFlags, fcntl_get_seals, fstat};
use rustix::io::Errno;

use super::errno::{failed, of_io};
use super::foreign::{identify, kind_of};
use super::mapping::{duplicate, page_size};
use super::maps::Backing;
use super::metadata::{FileRef, RegionFile};
use crate::error::{Result, fail};
use crate::log::log;
use crate::region::Region;

/// A descriptor of our own for a memory file, and how peers find it.
#[derive(Debug)]
pub(super) struct OwnFile {
    _file: OwnedFd,
    described: RegionFile,
}

impl OwnFile {
    /// Duplicates `fd`, in which `region` is said to begin at `offset`. `None`, and a warning, when
    /// it is a file that peers cannot map.
    pub(super) fn take(region: &Region, fd: RawFd, offset: u64) -> Result<Option<OwnFile>> {
        let file = match duplicate(fd).map_err(|error| of_io(&error)) {
            Ok(file) => file,
            Err(Errno::BADF) => fail!(
                InvalidArg,
                "region_fd is {fd}, which is not an open file descriptor"
            ),
            Err(errno) => return Err(failed(format!("duplicating region_fd {fd}"), errno)),
        };
        let unusable = |errno| failed(format!("looking at region_fd {fd}"), errno);
        let id = identify(&file).map_err(unusable)?;
        if !id.is_file {
            fail!(
                InvalidArg,
                "region_fd is {fd}, which is not a regular file or memory file"
            );
        }
        let page = page_size();
        if offset % page != region.base() % page {
            fail!(
                InvalidArg,
                "region_offset is {offset}, but memory at {:#x} can only be at {} plus a multiple of {page}",
                region.base(),
                region.base() % page
            );
        }
        let size = fstat(&file).map_err(unusable)?.st_size as u64;
        if offset
            .checked_add(region.bytes())
            .is_none_or(|end| end > size)
        {
            fail!(
                InvalidArg,
                "region_offset is {offset} and the region has {} bytes, but region_fd has only {size}",
                region.bytes()
            );
        }
        // Some file systems show one device here and another in /proc/self/maps: what is no memory
        // file cannot be compared, and need not be.
        if kind_of(id.dev)?.is_none() {
            log!(
                Warn,
                "region_fd is not a memory file (memfd): peers will not map the region, but copy more slowly by \
                 process_vm"
            );
            return Ok(None);
        }
        if !fcntl_get_seals(&file).is_ok_and(|seals| seals.contains(SealFlags::SHRINK)) {
            log!(
                Warn,
                "region_fd is not sealed with F_SEAL_SHRINK: peers will not map the region, but copy more slowly by \
                 process_vm"
            );
        }
        let described = RegionFile {
            file: FileRef {
                fd: file.as_raw_fd(),
                dev: id.dev,
                ino: id.ino,
            },
            offset,
        };
        Ok(Some(OwnFile {
            _file: file,
            described,
        }))
    }

    /// For peers.
    pub(super) fn described(&self) -> RegionFile {
        self.described
    }

    /// What /proc/self/maps must say of the region.
    pub(super) fn backing(&self) -> Backing {
        let RegionFile { file, offset } = self.described;
        Backing {
            dev: file.dev,
            ino: file.ino,
            offset,
        }
    }
}
