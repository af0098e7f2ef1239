//! The address space of another process: what tells that the process still runs the same program.
//!
//! Neither pid nor start time change when a process starts another program, and the lock on its
//! control page stays while a forked child has a copy of the descriptor. The address space goes.

use std::fs::File;
use std::os::unix::fs::FileExt;

use rustix::io::Errno;

use super::errno::{failed, of_io, status_of};
use super::memory_file::above_stdio;
use super::threads;
use crate::error::{Result, Status};

/// The address space that a process had when this was opened.
///
/// The file is `/proc/<pid>/pagemap`: to open it takes no more rights than to open the peer's
/// descriptors, and to read it makes no page come into being, which a peer could delay for ever.
#[derive(Debug)]
pub(super) struct Space(File);

impl Space {
    /// Takes hold of the address space of process `pid`; it ends with the process all the same.
    /// `None` where it cannot be looked at.
    pub(super) fn open(pid: u32) -> Result<Option<Space>> {
        let looked = threads::find(pid, |folder| {
            let file = File::open(format!("{folder}/pagemap")).map_err(|error| of_io(&error))?;
            let space = Space(above_stdio(file.into())?.into());
            // One that tells nothing at first would seem to be gone.
            if !space.is_used() {
                return Err(Errno::SRCH);
            }
            Ok(space)
        });
        match looked {
            Err(errno) if status_of(errno) == Status::NoMemory => {
                Err(failed(format!("opening /proc/{pid}/pagemap"), errno))
            }
            looked => Ok(looked.ok()),
        }
    }

    /// False when the process has another address space now, or none.
    pub(super) fn is_used(&self) -> bool {
        // Of a space whose last user has left the kernel says nothing, not even of its first page.
        !matches!(self.0.read_at(&mut [0; 8], 0), Ok(0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::process::Command;

    #[test]
    fn ends_with_its_process() {
        let own = Space::open(std::process::id()).unwrap();
        assert!(own.unwrap().is_used());
        let mut child = Command::new("sleep").arg("1000").spawn().unwrap();
        let space = Space::open(child.id()).unwrap().unwrap();
        assert!(space.is_used());
        child.kill().unwrap();
        child.wait().unwrap();
        assert!(!space.is_used());
        assert!(Space::open(child.id()).unwrap().is_none());
    }
}
