//! What the error numbers of the kernel mean to a caller.

use std::fmt::Display;
use std::io::ErrorKind;

use rustix::io::Errno;

use crate::error::{Error, Status};

/// The status of a system call that failed, where the place of the failure tells nothing more.
pub(super) fn status_of(errno: Errno) -> Status {
    match errno {
        // Descriptors, mappings, pages that may be locked (AGAIN), watches (NOSPC), locks.
        Errno::MFILE
        | Errno::NFILE
        | Errno::NOMEM
        | Errno::AGAIN
        | Errno::NOSPC
        | Errno::DQUOT
        | Errno::NOLCK => Status::NoMemory,
        Errno::ACCESS | Errno::PERM | Errno::NOSYS | Errno::OPNOTSUPP => Status::Unavailable,
        _ => Status::Backend,
    }
}

/// The error of a system call that failed while this library was doing `what`.
pub(super) fn failed(what: impl Display, errno: Errno) -> Error {
    Error::new(status_of(errno), format!("{what}: {errno}"))
}

/// The error number behind an error of the standard library.
pub(super) fn of_io(error: &std::io::Error) -> Errno {
    // It has errors of its own, without a number: a buffer that cannot be allocated is one.
    Errno::from_io_error(error).unwrap_or(match error.kind() {
        ErrorKind::OutOfMemory => Errno::NOMEM,
        _ => Errno::IO,
    })
}

/// The error of a file of /proc that cannot be read.
pub(super) fn unreadable(path: &str, error: &std::io::Error) -> Error {
    match of_io(error) {
        errno if status_of(errno) == Status::NoMemory => failed(format!("reading {path}"), errno),
        errno => Error::new(
            Status::Unavailable,
            format!(
                "cannot read {path}: {errno}; without /proc neither memory nor peers can be checked"
            ),
        ),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn running_out_is_not_being_refused() {
        for (errno, status) in [
            (Errno::MFILE, Status::NoMemory),
            (Errno::NFILE, Status::NoMemory),
            (Errno::NOMEM, Status::NoMemory),
            (Errno::PERM, Status::Unavailable),
            (Errno::NOSYS, Status::Unavailable),
            (Errno::IO, Status::Backend),
            (Errno::INVAL, Status::Backend),
        ] {
            assert_eq!(failed("opening", errno).status, status, "{errno}");
        }
        for (errno, status) in [
            (Errno::MFILE, Status::NoMemory),
            (Errno::NOENT, Status::Unavailable),
        ] {
            assert_eq!(unreadable("/proc/1/stat", &errno.into()).status, status);
        }
        let numberless = std::io::Error::from(ErrorKind::OutOfMemory);
        assert_eq!(of_io(&numberless), Errno::NOMEM);
        assert_eq!(
            unreadable("/proc/1/stat", &numberless).status,
            Status::NoMemory
        );
        let message = failed("opening it", Errno::MFILE).message;
        assert!(message.starts_with("opening it: "), "{message}");
    }
}
