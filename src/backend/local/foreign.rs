//! Opens files of another process by their descriptors, without trusting that they are what the
//! other process says.

use std::cell::Cell;
use std::os::fd::{AsFd, AsRawFd, OwnedFd};

use once_cell::sync::OnceCell;
use rustix::fs::{
    AtFlags, FileType, MemfdFlags, Mode, OFlags, RawMode, StatxFlags, makedev, memfd_create, open,
    statx,
};
use rustix::io::{Errno, retry_on_intr};

use super::errno::failed;
use super::memory_file::above_stdio;
use super::metadata::FileRef;
use super::{permission, threads};
use crate::error::{Result, fail};
use crate::process::PerProcess;

/// What a descriptor stands for, found without asking the file's file system.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct FileId {
    /// Device.
    pub(super) dev: u64,
    /// Inode.
    pub(super) ino: u64,
    /// True for a regular file.
    pub(super) is_file: bool,
}

/// Looks at an open file. DONT_SYNC: a file on a dead network mount, or on a file system that the
/// peer itself serves, must not make this process wait.
pub(super) fn identify(file: impl AsFd) -> rustix::io::Result<FileId> {
    let flags = AtFlags::EMPTY_PATH | AtFlags::STATX_DONT_SYNC;
    let found = statx(file, "", flags, StatxFlags::BASIC_STATS)?;
    Ok(FileId {
        dev: makedev(found.stx_dev_major, found.stx_dev_minor),
        ino: found.stx_ino,
        is_file: FileType::from_raw_mode(RawMode::from(found.stx_mode)) == FileType::RegularFile,
    })
}

/// How peers find an open file of this process.
pub(super) fn refer_to(file: impl AsFd) -> Result<FileRef> {
    let id = identify(&file).map_err(|errno| failed("looking at an own file", errno))?;
    Ok(FileRef {
        fd: file.as_fd().as_raw_fd(),
        dev: id.dev,
        ino: id.ino,
    })
}

/// What memory files are made of. All of one kind share one device, so that comparing devices tells
/// that a file is one, whatever process made it.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Kind {
    /// A memfd.
    Plain,
    /// A memfd of huge pages, which are mapped in whole ones.
    Huge,
}

/// The kind of the files on `dev`; `None` for what are no memory files.
pub(super) fn kind_of(dev: u64) -> Result<Option<Kind>> {
    static DEVICES: PerProcess<OnceCell<Vec<(u64, Kind)>>> = PerProcess::new(|_| OnceCell::new());
    // A failure is not kept: what had run out may be there the next time.
    let known = DEVICES.get().get_or_try_init(devices)?;
    let found = known.iter().find(|(known, _)| *known == dev);
    Ok(found.map(|(_, kind)| *kind))
}

/// Makes one file of each kind that this machine has, to learn the devices.
fn devices() -> Result<Vec<(u64, Kind)>> {
    let huge = MemfdFlags::HUGETLB;
    let mut known = Vec::new();
    for (flags, kind) in [
        (MemfdFlags::empty(), Kind::Plain),
        (huge, Kind::Huge),
        (huge | MemfdFlags::HUGE_2MB, Kind::Huge),
        (huge | MemfdFlags::HUGE_1GB, Kind::Huge),
    ] {
        let what = "making a memory file to learn its device";
        match memfd_create("dt-device", flags | MemfdFlags::CLOEXEC) {
            Ok(file) => {
                let id = identify(file).map_err(|errno| failed(what, errno))?;
                known.push((id.dev, kind));
            }
            // No such huge pages on this machine, or not for programs of this sandbox: then its
            // peers have no such files either.
            Err(errno) if kind == Kind::Huge && is_absent(errno) => {}
            Err(errno) => return Err(failed(what, errno)),
        }
    }
    Ok(known)
}

fn is_absent(errno: Errno) -> bool {
    matches!(
        errno,
        Errno::INVAL | Errno::NODEV | Errno::NOSYS | Errno::OPNOTSUPP | Errno::PERM | Errno::ACCESS
    )
}

/// Opens the memory file that `file` names in process `pid`, readable and writable.
///
/// The first step only takes hold of what is there. A foreign descriptor may be anything, a pipe or
/// a device whose opening waits or has effects: nothing is opened that is not a memory file.
pub(super) fn open_memory(pid: u32, file: FileRef, what: &str) -> Result<(OwnedFd, Kind)> {
    let open = |path: &str, how| retry_on_intr(|| open(path, how | OFlags::CLOEXEC, Mode::empty()));
    let path = format!("/proc/{pid}/fd/{}", file.fd);
    let is_it = |found: FileId| found.is_file && (found.dev, found.ino) == (file.dev, file.ino);
    let other = Cell::new(false);
    let looked = threads::find(pid, |folder| {
        let handle = open(&format!("{folder}/fd/{}", file.fd), OFlags::PATH)?;
        let found = identify(&handle)?;
        if !is_it(found) {
            other.set(true);
            return Err(Errno::NOENT);
        }
        Ok((handle, found))
    });
    let (handle, found) = match looked {
        Ok(found) => found,
        Err(_) if other.get() => fail!(
            PeerLost,
            "{path} is not {what} any more: the peer has closed its transport or restarted"
        ),
        Err(Errno::NOENT | Errno::SRCH) => {
            fail!(
                PeerLost,
                "{what} of process {pid} is gone: the peer has closed its transport or restarted"
            )
        }
        Err(errno @ (Errno::ACCESS | Errno::PERM)) => fail!(
            Unavailable,
            "permission to open {what} of process {pid} at {path} is missing ({}): run both processes under one uid \
             and gid, in one user namespace, with the same capabilities, keep the peer dumpable (no setuid program, no \
             prctl(PR_SET_DUMPABLE, 0)), or give this process CAP_SYS_PTRACE",
            permission::reason(pid, errno)
        ),
        Err(errno) => {
            let what = format!("opening {what} of process {pid} at {path}");
            return Err(failed(what, errno));
        }
    };
    let Some(kind) = kind_of(found.dev)? else {
        fail!(
            Incompatible,
            "{what} of process {pid} at {path} is not a memory file (memfd)"
        );
    };
    // Of this thread: the process's own may be empty, or another one.
    let again = format!("/proc/thread-self/fd/{}", handle.as_raw_fd());
    let reopened = open(&again, OFlags::RDWR)
        .and_then(above_stdio)
        .and_then(|opened| Ok((identify(&opened)?, opened)));
    match reopened {
        Ok((found, opened)) if is_it(found) => Ok((opened, kind)),
        Ok(_) => fail!(
            Unavailable,
            "{again} is not the file that was opened under this number: /proc is not that of this process"
        ),
        Err(errno @ (Errno::ACCESS | Errno::PERM)) => fail!(
            Unavailable,
            "permission to open {what} of process {pid} at {path} for writing is missing ({errno}): run both \
             processes under one uid, in one user namespace"
        ),
        Err(errno) => Err(failed(
            format!("opening {what} of process {pid} at {path} for writing"),
            errno,
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::error::Status;
    use std::os::fd::AsRawFd;

    fn reference(file: &impl AsFd) -> FileRef {
        let id = identify(file).unwrap();
        FileRef {
            fd: file.as_fd().as_raw_fd(),
            dev: id.dev,
            ino: id.ino,
        }
    }

    fn status(file: FileRef) -> Status {
        open_memory(std::process::id(), file, "the file")
            .unwrap_err()
            .status
    }

    #[test]
    fn opens_memory_files_only() {
        let memory = memfd_create("dt-test", MemfdFlags::CLOEXEC).unwrap();
        let good = reference(&memory);
        let (opened, kind) = open_memory(std::process::id(), good, "the file").unwrap();
        assert_eq!((reference(&opened).ino, kind), (good.ino, Kind::Plain));
        assert_eq!(
            status(FileRef {
                ino: good.ino + 1,
                ..good
            }),
            Status::PeerLost
        );
        assert_eq!(
            status(FileRef {
                dev: good.dev + 1,
                ..good
            }),
            Status::PeerLost
        );
        assert_eq!(
            status(FileRef {
                fd: i32::MAX,
                ..good
            }),
            Status::PeerLost
        );

        // Opening the read end of this pipe for writing and reading would work, and be wrong.
        let (pipe, _writer) = rustix::pipe::pipe().unwrap();
        assert_eq!(status(reference(&pipe)), Status::PeerLost);
        let device = std::fs::File::open("/dev/zero").unwrap();
        assert_eq!(status(reference(&device)), Status::PeerLost);
        let folder = std::fs::File::open("/proc/self").unwrap();
        assert_eq!(status(reference(&folder)), Status::PeerLost);
        let disk = std::fs::File::open(std::env::current_exe().unwrap()).unwrap();
        assert_eq!(status(reference(&disk)), Status::Incompatible);
    }

    #[test]
    fn a_process_that_is_gone_is_lost() {
        let mut child = std::process::Command::new("true").spawn().unwrap();
        child.wait().unwrap();
        let file = FileRef {
            fd: 0,
            dev: 1,
            ino: 1,
        };
        let error = open_memory(child.id(), file, "the file").unwrap_err();
        assert_eq!(error.status, Status::PeerLost);
    }
}
