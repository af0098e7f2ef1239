//! Locks on single bytes of a file, of an open file description: the kernel drops them with the last
//! descriptor and mapping of it, however its process ends.

use std::os::fd::{AsFd, AsRawFd};

use rustix::io::Errno;

use super::errno::of_io;

/// Locks a byte of `file` for this open file description; false when another one has it.
pub(super) fn lock(file: impl AsFd, byte: i64) -> rustix::io::Result<bool> {
    match ofd_lock(file, libc::F_OFD_SETLK, libc::F_WRLCK, byte) {
        Ok(_) => Ok(true),
        Err(Errno::AGAIN | Errno::ACCESS) => Ok(false),
        Err(errno) => Err(errno),
    }
}

/// Gives a lock back.
pub(super) fn unlock(file: impl AsFd, byte: i64) {
    // Only the arguments could be wrong.
    let _ = ofd_lock(file, libc::F_OFD_SETLK, libc::F_UNLCK, byte);
}

/// True when an open file description other than this one has locked a byte of `file`.
pub(super) fn is_locked(file: impl AsFd, byte: i64) -> rustix::io::Result<bool> {
    let found = ofd_lock(file, libc::F_OFD_GETLK, libc::F_WRLCK, byte)?;
    Ok(i32::from(found) != libc::F_UNLCK)
}

fn ofd_lock(
    file: impl AsFd,
    command: libc::c_int,
    kind: libc::c_int,
    byte: i64,
) -> rustix::io::Result<i16> {
    // SAFETY: all-zero is a valid value of this struct of plain numbers.
    let mut range: libc::flock = unsafe { std::mem::zeroed() };
    range.l_type = kind as i16;
    range.l_whence = libc::SEEK_SET as i16;
    range.l_start = byte;
    range.l_len = 1;
    // SAFETY: the descriptor is open for as long as `file` is borrowed, and the kernel reads and
    // writes one `flock` behind the pointer.
    if unsafe { libc::fcntl(file.as_fd().as_raw_fd(), command, &mut range) } < 0 {
        return Err(of_io(&std::io::Error::last_os_error()));
    }
    Ok(range.l_type)
}
