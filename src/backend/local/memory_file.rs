//! Memory files: what control pages and regions are made of. And descriptors in general.

use std::os::fd::{AsRawFd, OwnedFd};

use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
use rustix::io::{Errno, fcntl_dupfd_cloexec, retry_on_intr};
use rustix::process::{Resource, getrlimit};

use super::errno::failed;
use crate::error::{Result, fail};

/// Lowest number of a descriptor of ours. In a program that has closed its standard input, output or
/// error, a new descriptor takes that number, and the next `printf` would write into a region.
pub(super) const FIRST_FD: i32 = 3;

/// A new memory file called `name`, zeroed, of exactly `bytes`, whose size nobody can change. `what`
/// it is for goes into the error.
pub(super) fn create(what: &str, name: &str, bytes: u64) -> Result<OwnedFd> {
    // Beyond this limit the kernel does not refuse, it sends SIGXFSZ.
    if let Some(limit) = getrlimit(Resource::Fsize)
        .current
        .filter(|limit| bytes > *limit)
    {
        fail!(
            NoMemory,
            "{what}: the limit for file sizes (RLIMIT_FSIZE, ulimit -f) is {limit} bytes, but {bytes} are needed"
        );
    }
    let refused = |step: &'static str| move |errno: Errno| failed(format!("{what}: {step}"), errno);
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create(name, flags).map_err(refused("memfd_create"))?;
    let file = above_stdio(file).map_err(refused("a descriptor for it"))?;
    retry_on_intr(|| ftruncate(&file, bytes)).map_err(refused("ftruncate"))?;
    // The last seal keeps others from adding seals: a peer could otherwise forbid writing.
    let seals = SealFlags::SHRINK | SealFlags::GROW | SealFlags::SEAL;
    fcntl_add_seals(&file, seals).map_err(refused("sealing its size"))?;
    Ok(file)
}

/// The same open file under a number that no standard stream has.
pub(super) fn above_stdio(fd: OwnedFd) -> rustix::io::Result<OwnedFd> {
    if fd.as_raw_fd() >= FIRST_FD {
        return Ok(fd);
    }
    fcntl_dupfd_cloexec(&fd, FIRST_FD)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn descriptors_keep_away_from_the_standard_streams() {
        let file = create("a test", "dt-test", 1).unwrap();
        let number = file.as_raw_fd();
        assert!(number >= FIRST_FD);
        assert_eq!(above_stdio(file).unwrap().as_raw_fd(), number);
    }
}
