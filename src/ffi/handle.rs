//! What a `dt_transport *` is.

use std::ffi::CString;
use std::sync::atomic::{AtomicU64, Ordering};

use crate::error::{Error, Result, Status, fail};
use crate::transport::Transport;

/// One end of the data plane: a region of memory, the peers that it moves blocks to and from, and
/// the transfers in flight. Opaque; made by dt_create, freed by dt_destroy.
pub struct dt_transport {
    _opaque: [u8; 0],
}

/// "DTHANDLE". It stands in front of every live handle, so that most other pointers are told apart.
const MAGIC: u64 = u64::from_le_bytes(*b"DTHANDLE");

/// What a `dt_transport *` really points to.
#[repr(C)]
pub(super) struct Handle {
    magic: AtomicU64,
    pub(super) transport: Transport,
    // C strings that the accessors give out.
    pub(super) fingerprint: CString,
    pub(super) agent_name: CString,
}

impl Handle {
    /// The pointer for C; [`take`] is its end.
    pub(super) fn give_out(transport: Transport) -> Result<*mut dt_transport> {
        let handle = Box::new(Handle {
            magic: AtomicU64::new(MAGIC),
            fingerprint: c_string("the fingerprint", transport.fingerprint())?,
            agent_name: c_string("the agent name", transport.agent_name())?,
            transport,
        });
        Ok(Box::into_raw(handle).cast())
    }
}

/// The handle behind a pointer.
///
/// # Safety
/// `t` is NULL or misaligned, or points to readable memory; a handle is not destroyed during `'a`.
pub(super) unsafe fn handle<'a>(t: *const dt_transport) -> Result<&'a Handle> {
    let ptr = t.cast::<Handle>();
    if ptr.is_null() {
        fail!(InvalidArg, "the transport (t) is NULL");
    }
    // SAFETY: readable, as the caller promises. The number is read alone, before anything else of
    // what may not be a handle.
    if !ptr.is_aligned() || unsafe { (*ptr).magic.load(Ordering::Relaxed) } != MAGIC {
        fail!(
            InvalidArg,
            "{:#x} is not a transport, or one that was destroyed",
            ptr.addr()
        );
    }
    // SAFETY: only `give_out` writes the number, so this is a handle, alive as the caller promises.
    Ok(unsafe { &*ptr })
}

/// Takes the handle behind a pointer back from C. The second time it finds no transport, unless the
/// memory has been used again.
///
/// # Safety
/// As for [`handle`], and nobody uses the handle any more.
pub(super) unsafe fn take(t: *mut dt_transport) -> Result<Option<Box<Handle>>> {
    // SAFETY: as the caller promises.
    let taken = unsafe { handle(t) }?.magic.swap(0, Ordering::Relaxed) == MAGIC;
    // SAFETY: made by `Box::into_raw` in `give_out`, and taken back once: the number was there.
    Ok(taken.then(|| unsafe { Box::from_raw(t.cast::<Handle>()) }))
}

fn c_string(name: &str, text: &str) -> Result<CString> {
    CString::new(text)
        .map_err(|error| Error::new(Status::Internal, format!("{name} has a NUL: {error}")))
}
