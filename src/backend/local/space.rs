//! The address space of another process: what tells that the process still runs the same program.
//!
//! Neither pid nor start time change when a process starts another program, and the lock on its
//! control page stays while a forked child has a copy of the descriptor. The address space goes.

use std::fs::File;
use std::os::unix::fs::FileExt;

use super::errno::{failed, of_io, status_of};
use crate::error::{Result, Status};

/// The address space that a process had when this was opened.
#[derive(Debug)]
pub(super) struct Space {
    file: File,
    probe: u64,
}

impl Space {
    /// Takes hold of the address space of process `pid`; it ends with the process all the same.
    /// `probe` is an address that is mapped there. `None` where this process may not look into it.
    pub(super) fn open(pid: u32, probe: u64) -> Result<Option<Space>> {
        let path = format!("/proc/{pid}/mem");
        match File::open(&path).map_err(|error| of_io(&error)) {
            Ok(file) => Ok(Some(Space { file, probe })),
            Err(errno) if status_of(errno) == Status::NoMemory => {
                Err(failed(format!("opening {path}"), errno))
            }
            Err(_) => Ok(None),
        }
    }

    /// False when the process has another address space now, or none.
    pub(super) fn is_used(&self) -> bool {
        // Reading nothing is the kernel's answer for a space whose last user has left; what cannot
        // be read in one that is used is an error.
        !matches!(self.file.read_at(&mut [0], self.probe), Ok(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn ends_with_its_process() {
        let here = 0u8;
        let own = Space::open(std::process::id(), &raw const here as u64);
        assert!(own.unwrap().unwrap().is_used());
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        // Nothing is mapped at the first page: an address that tells less, but no wrong thing.
        let space = Space::open(child.id(), 4096).unwrap().unwrap();
        assert!(space.is_used());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!space.is_used());
        assert!(Space::open(child.id(), 4096).unwrap().is_none());
    }
}
