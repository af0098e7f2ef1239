//! What can go wrong, as one status and one sentence.
//!
//! The sentence names the argument, the value and the limit, and where there is one, the remedy:
//! it is what `dt_last_error` shows to the caller. The numbers are those of the C ABI and are never
//! reused.

use std::fmt;

/// Why a call or a transfer failed. Success is the absence of an `Error`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Hash)]
#[repr(i32)]
pub enum Status {
    /// Malformed input.
    InvalidArg = -1,
    /// A block index beyond the region.
    OutOfRange = -2,
    /// Unknown peer or transfer.
    NotFound = -3,
    /// Well-formed input that does not fit together.
    Incompatible = -4,
    /// The caller's buffer is smaller than the result.
    BufferTooSmall = -5,
    /// The transport was closed.
    Closed = -6,
    /// The backend reported a failure.
    Backend = -7,
    /// The backend's library, plugin or permission is missing.
    Unavailable = -8,
    /// The peer's process or endpoint is gone, or the peer is faulted.
    PeerLost = -9,
    /// The transfer was cancelled.
    Cancelled = -10,
    /// A bounded wait ran out.
    Timeout = -11,
    /// Not possible now; later it may be.
    Busy = -12,
    /// Memory, descriptors or slots ran out.
    NoMemory = -13,
    /// The handle was used in a forked child.
    Forked = -14,
    /// A fault of this library.
    Internal = -15,
}

/// A failure: the status that a program reads and the sentence that a person reads.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Error {
    /// The status.
    pub status: Status,
    /// One line; no trailing full stop.
    pub message: String,
}

/// The result of everything in this crate that can fail.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// An error of `status` that says `message`.
    pub fn new(status: Status, message: impl Into<String>) -> Self {
        Error {
            status,
            message: message.into(),
        }
    }

    /// `self` with `context` in front of its sentence.
    pub fn context(self, context: impl fmt::Display) -> Self {
        Error {
            status: self.status,
            message: format!("{context}: {}", self.message),
        }
    }
}

/// A name that somebody chose, for a sentence: quoted, and cut where it is so long that it would crowd
/// out the rest.
pub struct Quoted<'a>(pub &'a str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        const MOST: usize = 40;
        match self.0.char_indices().nth(MOST) {
            None => write!(f, "{:?}", self.0),
            Some((end, _)) => write!(f, "{:?}...", &self.0[..end]),
        }
    }
}

impl fmt::Display for Error {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.message)
    }
}

impl std::error::Error for Error {}

/// Returns early with an [`Error`]: `fail!(InvalidArg, "count is {count}")`.
macro_rules! fail {
    ($status:ident, $($arg:tt)+) => {
        return Err($crate::error::Error::new($crate::error::Status::$status, format!($($arg)+)))
    };
}
pub(crate) use fail;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn long_names_leave_room_for_the_rest() {
        assert_eq!(Quoted("decode \"0\"").to_string(), r#""decode \"0\"""#);
        let long = "\u{e9}".repeat(1000);
        assert_eq!(
            Quoted(&long).to_string(),
            format!("\"{}\"...", "\u{e9}".repeat(40))
        );
    }
}
