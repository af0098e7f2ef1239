//! The program of another process, and what tells of its end. A child that it forked has copies of its
//! descriptors, and so its locks, but does nothing for it.

use std::os::fd::{AsFd, BorrowedFd, OwnedFd};

use super::identity::{ProcessId, has_ended};
use super::space::Space;
use crate::error::Result;

/// A program that ran when this was made.
#[derive(Debug)]
pub(super) struct Program {
    process: ProcessId,
    /// Becomes readable when the process dies.
    pidfd: OwnedFd,
    /// The address space that it had. `None` where that cannot be looked at.
    space: Option<Space>,
}

impl Program {
    /// What `process` runs now.
    pub(super) fn of(process: ProcessId) -> Result<Program> {
        Ok(Program {
            process,
            pidfd: process.open()?,
            space: Space::open(process.pid())?,
        })
    }

    /// The pid.
    pub(super) fn pid(&self) -> u32 {
        self.process.pid()
    }

    /// What becomes readable when the process dies.
    pub(super) fn pidfd(&self) -> BorrowedFd<'_> {
        self.pidfd.as_fd()
    }

    /// True when the process has ended.
    pub(super) fn has_ended(&self) -> bool {
        has_ended(&self.pidfd)
    }

    /// False when the process has started another program; it also shows that it has ended. `None`
    /// where that cannot be seen.
    pub(super) fn has_its_memory(&self) -> Option<bool> {
        self.space.as_ref().map(Space::is_used)
    }
}
