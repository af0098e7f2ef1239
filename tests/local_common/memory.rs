//! Memory for regions, of every kind that a caller can have.

use super::*;

/// What backs a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// `dt_region_alloc`: peers map it.
    Shared,
    /// A memfd whose size is not sealed.
    Unsealed,
    /// Anonymous memory.
    Foreign,
    /// A memfd of huge pages, sealed; see [`HugePages`].
    Huge,
    /// A file on disk.
    Disk,
    /// A file in /dev/shm.
    Tmpfs,
}

impl Backing {
    pub fn named(name: &str) -> Backing {
        use Backing::*;
        let all = [Shared, Unsealed, Foreign, Huge, Disk, Tmpfs];
        let found = all
            .into_iter()
            .find(|backing| format!("{backing:?}") == name);
        found.unwrap_or_else(|| panic!("there is no backing {name}"))
    }
}

const HUGE_PAGE: usize = 2 << 20;

/// Huge pages of the machine, reserved for one test at a time. Dropping it gives them back.
pub struct HugePages {
    before: String,
    /// Locked: whoever runs these tests besides waits for the pages.
    _setting: std::fs::File,
}

impl HugePages {
    const SETTING: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

    /// `None`, and a loud word, when this machine does not give them.
    pub fn reserve(pages: u64) -> Option<HugePages> {
        let set = || -> std::io::Result<(HugePages, u64)> {
            let setting = std::fs::File::open(Self::SETTING)?;
            rustix::fs::flock(&setting, rustix::fs::FlockOperation::LockExclusive)?;
            let before = std::fs::read_to_string(Self::SETTING)?;
            let wanted = before.trim().parse::<u64>().unwrap() + pages;
            std::fs::write(Self::SETTING, wanted.to_string())?;
            let now = std::fs::read_to_string(Self::SETTING)?;
            let missing = wanted - now.trim().parse::<u64>().unwrap();
            let reserved = HugePages {
                before,
                _setting: setting,
            };
            Ok((reserved, missing))
        };
        match set() {
            Ok((reserved, 0)) => return Some(reserved),
            Ok((_, missing)) => skip(format!("{missing} of {pages} huge pages are missing")),
            Err(error) => skip(format!("huge pages: {}: {error}", Self::SETTING)),
        }
        None
    }
}

/// A test that cannot run says so; where everything must be there, that is a failure.
pub fn skip(why: String) {
    assert!(std::env::var_os("CI").is_none(), "{why}");
    // Past what the test harness keeps to itself.
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("SKIPPED: {why}\n"));
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = std::fs::write(Self::SETTING, &self.before);
    }
}

/// A new file in `folder` that goes when it is closed.
fn unnamed_file(folder: &std::path::Path) -> OwnedFd {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("dt-test-{}-{number}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(&path);
    std::fs::remove_file(&path).unwrap();
    file.unwrap().into()
}

/// Memory that is looked at only through raw pointers, because others write it.
pub struct Memory {
    pub address: usize,
    pub bytes: usize,
    mapped: usize,
    pub fd: Option<OwnedFd>,
}

impl Memory {
    pub fn new(backing: Backing, bytes: usize) -> Memory {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
        use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};
        let mode = ProtFlags::READ | ProtFlags::WRITE;
        let nowhere = std::ptr::null_mut();
        let map = |fd: OwnedFd, bytes: usize| {
            ftruncate(&fd, bytes as u64).unwrap();
            // SAFETY: the kernel chooses a free range.
            let at = unsafe { mmap(nowhere, bytes, mode, MapFlags::SHARED, &fd, 0).unwrap() };
            (at as usize, Some(fd))
        };
        let mut mapped = bytes;
        let (address, fd) = match backing {
            Backing::Shared => {
                let (address, fd) = alloc::alloc(bytes).unwrap();
                (address, Some(fd))
            }
            Backing::Unsealed => {
                let fd = memfd_create("dt-unsealed", MemfdFlags::CLOEXEC).unwrap();
                map(fd, bytes)
            }
            Backing::Huge => {
                mapped = bytes.next_multiple_of(HUGE_PAGE);
                let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
                let huge = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
                let (at, fd) = map(memfd_create("dt-huge", flags | huge).unwrap(), mapped);
                fcntl_add_seals(fd.as_ref().unwrap(), SealFlags::SHRINK).unwrap();
                (at, fd)
            }
            Backing::Disk => {
                let program = std::env::current_exe().unwrap();
                map(unnamed_file(program.parent().unwrap()), bytes)
            }
            Backing::Tmpfs => map(unnamed_file("/dev/shm".as_ref()), bytes),
            Backing::Foreign => {
                // SAFETY: the kernel chooses a free range.
                let at = unsafe { mmap_anonymous(nowhere, bytes, mode, MapFlags::PRIVATE) };
                (at.unwrap() as usize, None)
            }
        };
        Memory {
            address,
            bytes,
            mapped,
            fd,
        }
    }

    pub fn get(&self) -> Vec<u8> {
        let mut copy = vec![0; self.bytes];
        // SAFETY: `self` keeps the memory mapped.
        unsafe { std::ptr::copy(self.address as *const u8, copy.as_mut_ptr(), self.bytes) };
        copy
    }

    pub fn put(&self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.bytes);
        // SAFETY: `self` keeps the memory mapped.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.address as *mut u8, self.bytes) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: all kinds of memory were mapped here, and transports of it are closed before.
        unsafe { alloc::free(self.address, self.mapped) };
    }
}
