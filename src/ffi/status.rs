//! Status codes and the version.

use std::ffi::c_char;

use crate::error::Status;

/// The result of a call, or of a transfer: DT_OK, or one of the negative DT_ERR_ codes. A number is
/// never reused; later versions may add codes, so treat an unknown negative one as a failure.
pub type dt_status = i32;

/// Success.
pub const DT_OK: dt_status = 0;
/// An argument is malformed: NULL, zero, misaligned, not UTF-8, an unknown enum value, garbage. The
/// caller has to change the call.
pub const DT_ERR_INVALID_ARG: dt_status = -1;
/// A block index is not below the number of blocks of its side. Nothing was moved.
pub const DT_ERR_OUT_OF_RANGE: dt_status = -2;
/// No peer or transfer has this name.
pub const DT_ERR_NOT_FOUND: dt_status = -3;
/// Each argument is well-formed, but they do not fit together or to this library: fingerprint, block
/// length, backend, host, version, or a range that the metadata does not cover.
pub const DT_ERR_INCOMPATIBLE: dt_status = -4;
/// The caller's buffer is too small. The size needed was written.
pub const DT_ERR_BUFFER_TOO_SMALL: dt_status = -5;
/// The transport was closed by dt_close.
pub const DT_ERR_CLOSED: dt_status = -6;
/// The backend or the operating system reported a failure that no other code names.
pub const DT_ERR_BACKEND: dt_status = -7;
/// What this needs is missing: a library, a plugin, a permission. dt_last_error says which.
pub const DT_ERR_UNAVAILABLE: dt_status = -8;
/// The peer's process is gone or has closed its transport, or the peer is faulted. Remove or add
/// the peer again; the library never reconnects by itself.
pub const DT_ERR_PEER_LOST: dt_status = -9;
/// The transfer was cancelled by the caller: with its peer, or by dt_cancel.
pub const DT_ERR_CANCELLED: dt_status = -10;
/// The time that the caller allowed has run out.
pub const DT_ERR_TIMEOUT: dt_status = -11;
/// Not possible now. Poll, then try again.
pub const DT_ERR_BUSY: dt_status = -12;
/// Memory, file descriptors or other bounded resources ran out.
pub const DT_ERR_NO_MEMORY: dt_status = -13;
/// The handle was made before a fork() and used in the child.
pub const DT_ERR_FORKED: dt_status = -14;
/// A fault of this library. The handle, if one was given, refuses all further work: destroy it.
pub const DT_ERR_INTERNAL: dt_status = -15;

const _: () = {
    assert!(DT_ERR_INVALID_ARG == Status::InvalidArg as i32);
    assert!(DT_ERR_OUT_OF_RANGE == Status::OutOfRange as i32);
    assert!(DT_ERR_NOT_FOUND == Status::NotFound as i32);
    assert!(DT_ERR_INCOMPATIBLE == Status::Incompatible as i32);
    assert!(DT_ERR_BUFFER_TOO_SMALL == Status::BufferTooSmall as i32);
    assert!(DT_ERR_CLOSED == Status::Closed as i32);
    assert!(DT_ERR_BACKEND == Status::Backend as i32);
    assert!(DT_ERR_UNAVAILABLE == Status::Unavailable as i32);
    assert!(DT_ERR_PEER_LOST == Status::PeerLost as i32);
    assert!(DT_ERR_CANCELLED == Status::Cancelled as i32);
    assert!(DT_ERR_TIMEOUT == Status::Timeout as i32);
    assert!(DT_ERR_BUSY == Status::Busy as i32);
    assert!(DT_ERR_NO_MEMORY == Status::NoMemory as i32);
    assert!(DT_ERR_FORKED == Status::Forked as i32);
    assert!(DT_ERR_INTERNAL == Status::Internal as i32);
};

/// The name of a status, for instance "DT_ERR_TIMEOUT".
///
/// @param status  any integer.
/// @return a static string, never NULL; "DT_ERR_UNKNOWN" for a number that is no status.
#[unsafe(no_mangle)]
pub extern "C" fn dt_status_str(status: dt_status) -> *const c_char {
    let name = match status {
        DT_OK => c"DT_OK",
        DT_ERR_INVALID_ARG => c"DT_ERR_INVALID_ARG",
        DT_ERR_OUT_OF_RANGE => c"DT_ERR_OUT_OF_RANGE",
        DT_ERR_NOT_FOUND => c"DT_ERR_NOT_FOUND",
        DT_ERR_INCOMPATIBLE => c"DT_ERR_INCOMPATIBLE",
        DT_ERR_BUFFER_TOO_SMALL => c"DT_ERR_BUFFER_TOO_SMALL",
        DT_ERR_CLOSED => c"DT_ERR_CLOSED",
        DT_ERR_BACKEND => c"DT_ERR_BACKEND",
        DT_ERR_UNAVAILABLE => c"DT_ERR_UNAVAILABLE",
        DT_ERR_PEER_LOST => c"DT_ERR_PEER_LOST",
        DT_ERR_CANCELLED => c"DT_ERR_CANCELLED",
        DT_ERR_TIMEOUT => c"DT_ERR_TIMEOUT",
        DT_ERR_BUSY => c"DT_ERR_BUSY",
        DT_ERR_NO_MEMORY => c"DT_ERR_NO_MEMORY",
        DT_ERR_FORKED => c"DT_ERR_FORKED",
        DT_ERR_INTERNAL => c"DT_ERR_INTERNAL",
        _ => c"DT_ERR_UNKNOWN",
    };
    name.as_ptr()
}

/// The version of the library that is running, which may be newer than this header. (The number is
/// made otherwise than DT_ABI_VERSION: do not compare the two.)
///
/// @return major << 16 | minor << 8 | patch.
#[unsafe(no_mangle)]
pub extern "C" fn dt_version() -> u32 {
    (version::MAJOR << 16) | (version::MINOR << 8) | version::PATCH
}

/// The parts of the crate's version.
pub(super) mod version {
    const fn number(digits: &str) -> u32 {
        match u32::from_str_radix(digits, 10) {
            Ok(number) if number < 256 => number,
            _ => panic!("a part of the version does not fit into 8 bits"),
        }
    }

    pub(in crate::ffi) const MAJOR: u32 = number(env!("CARGO_PKG_VERSION_MAJOR"));
    pub(in crate::ffi) const MINOR: u32 = number(env!("CARGO_PKG_VERSION_MINOR"));
    pub(in crate::ffi) const PATCH: u32 = number(env!("CARGO_PKG_VERSION_PATCH"));
}
