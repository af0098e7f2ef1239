//! What `/proc/self/maps` says of a region: whether its memory is there, and what backs it.

use std::ops::Range;

use rustix::fs::makedev;

use super::errno::unreadable;
use crate::error::{Result, fail};
use crate::region::Region;

/// The file that a region is said to be a mapping of.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Backing {
    /// Device of the file.
    pub dev: u64,
    /// Inode of the file.
    pub ino: u64,
    /// Offset of the region's base in the file.
    pub offset: u64,
}

/// Checks that every byte of `region` is mapped readable and writable in this process, and, when
/// `backing` is given, that it is a shared mapping of just that part of that file.
pub fn check(region: &Region, backing: Option<Backing>) -> Result<()> {
    // Bytes: the names of mapped files need not be UTF-8.
    // Of this thread: where main has ended by pthread_exit, the process itself shows nothing.
    let path = "/proc/thread-self/maps";
    let maps = std::fs::read(path).map_err(|error| unreadable(path, &error))?;
    check_in(&String::from_utf8_lossy(&maps), region, backing)
}

fn check_in(maps: &str, region: &Region, backing: Option<Backing>) -> Result<()> {
    // First address that no line has accounted for yet.
    let mut at = region.base();
    for entry in maps.lines().filter_map(Entry::parse) {
        if at >= region.end() || entry.range.start > at {
            break;
        }
        if !entry.range.contains(&at) {
            continue;
        }
        if !entry.read_write {
            fail!(
                InvalidArg,
                "the region is {:#x} to {:#x}, but the memory at {at:#x} is not both readable and writable",
                region.base(),
                region.end()
            );
        }
        if let Some(backing) = backing {
            entry.check_backing(region, &backing, at)?;
        }
        at = entry.range.end;
    }
    if at < region.end() {
        fail!(
            InvalidArg,
            "the region is {:#x} to {:#x}, but nothing is mapped at {at:#x}",
            region.base(),
            region.end()
        );
    }
    Ok(())
}

/// One line of `/proc/self/maps`.
struct Entry {
    range: Range<u64>,
    read_write: bool,
    shared: bool,
    offset: u64,
    dev: u64,
    ino: u64,
}

impl Entry {
    fn parse(line: &str) -> Option<Entry> {
        let mut fields = line.split_ascii_whitespace();
        let hex = |text: &str| u64::from_str_radix(text, 16).ok();
        let (start, end) = fields.next()?.split_once('-')?;
        let mode = fields.next()?;
        let offset = fields.next()?;
        let (major, minor) = fields.next()?.split_once(':')?;
        let ino = fields.next()?;
        Some(Entry {
            range: hex(start)?..hex(end)?,
            read_write: mode.starts_with("rw"),
            shared: mode.ends_with('s'),
            offset: hex(offset)?,
            dev: makedev(hex(major)? as u32, hex(minor)? as u32),
            ino: ino.parse().ok()?,
        })
    }

    fn check_backing(&self, region: &Region, backing: &Backing, at: u64) -> Result<()> {
        if (self.dev, self.ino) != (backing.dev, backing.ino) {
            fail!(
                InvalidArg,
                "region_fd is not the file that is mapped at {at:#x}, where the region lies; leave region_fd out \
                 when the region is not a mapping of one file"
            );
        }
        if !self.shared {
            fail!(
                InvalidArg,
                "the region at {at:#x} is a private mapping of region_fd: map it with MAP_SHARED"
            );
        }
        let is = self.offset + (at - self.range.start);
        let claimed = backing.offset + (at - region.base());
        if is != claimed {
            fail!(
                InvalidArg,
                "region_offset is {}, but the memory at {at:#x} is at offset {is} of region_fd, not {claimed}",
                backing.offset
            );
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;

    const MAPS: &str = "\
1000-3000 rw-p 00000000 00:00 0
3000-4000 r--p 00000000 00:00 0    [x]
5000-6000 rw-s 00002000 00:01 42   /memfd:a (deleted)
6000-8000 rw-s 00003000 00:01 42   /memfd:a (deleted)
8000-9000 rw-s 00006000 00:01 42   /memfd:a (deleted)
9000-a000 rw-p 00005000 00:01 42   /memfd:a (deleted)
ffffffffff600000-ffffffffff601000 --xp 00000000 00:00 0 [vsyscall]
";

    fn message(base: u64, bytes: u64, backing: Option<Backing>) -> String {
        let region = Region::new(base, bytes, 1).unwrap();
        match check_in(MAPS, &region, backing) {
            Ok(()) => String::new(),
            Err(error) => {
                assert_eq!(error.status, Status::InvalidArg);
                error.message
            }
        }
    }

    fn backing(ino: u64, offset: u64) -> Option<Backing> {
        Some(Backing {
            dev: makedev(0, 1),
            ino,
            offset,
        })
    }

    #[test]
    fn finds_the_first_bad_address() {
        assert_eq!(message(0x1000, 0x2000, None), "");
        assert_eq!(message(0x1fff, 2, None), "");
        assert!(message(0x1000, 0x2001, None).contains("0x3000 is not both"));
        assert!(message(0x500, 0x10, None).contains("nothing is mapped at 0x500"));
        assert!(message(0x500, 0x1000, None).contains("nothing is mapped at 0x500"));
        assert!(message(0x4000, 0x1001, None).contains("nothing is mapped at 0x4000"));
        assert!(message(0xb000, 1, None).contains("nothing is mapped at 0xb000"));
        assert!(message(0xa000, 1, None).contains("nothing is mapped at 0xa000"));
        assert!(message(0x5000, 0x5001, None).contains("nothing is mapped at 0xa000"));
        assert_eq!(message(0x5000, 0x5000, None), "");
    }

    #[test]
    fn the_file_must_be_the_one_that_is_mapped() {
        assert_eq!(message(0x5000, 0x3000, backing(42, 0x2000)), "");
        assert_eq!(message(0x5010, 0x20, backing(42, 0x2010)), "");
        assert!(message(0x5000, 0x1000, backing(42, 0)).contains("region_offset is 0"));
        assert!(message(0x5000, 0x1000, backing(43, 0x2000)).contains("not the file"));
        assert!(message(0x1000, 0x1000, backing(42, 0)).contains("not the file"));
        assert!(message(0x9000, 0x1000, backing(42, 0x5000)).contains("MAP_SHARED"));
        // One file, but the later part is not where it would have to be.
        assert!(message(0x5000, 0x4000, backing(42, 0x2000)).contains("0x8000"));
    }

    #[test]
    fn the_own_stack_is_mapped() {
        let here = [0u8; 64];
        check(&Region::new(here.as_ptr() as u64, 64, 1).unwrap(), None).unwrap();
        let code = the_own_stack_is_mapped as *const () as u64;
        assert!(check(&Region::new(code, 1, 1).unwrap(), None).is_err());
    }
}
