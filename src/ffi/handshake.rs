//! The handshake: all that two nodes must know of each other in one blob each.

use std::ffi::{c_char, c_void};

use super::args::{self, Fill};
use super::guard;
use super::handle::dt_transport;
use super::status::dt_status;

/// Copies all that a peer must know of this transport in one blob: backend, fingerprint of the
/// configuration, address, number and length of the blocks, and the agent metadata. It has a
/// version and a check sum. The same bytes on every call.
///
/// @param t    the transport.
/// @param buf  where the blob goes; NULL is allowed if cap is 0.
/// @param cap  bytes at buf. About 1 KiB is enough; ask for the size.
/// @param len  set to the size needed, also on DT_ERR_BUFFER_TOO_SMALL.
///
/// @return
/// - DT_OK
/// - DT_ERR_INVALID_ARG: t is not a transport; len is NULL; buf is NULL with a cap that is not 0
/// - DT_ERR_BUFFER_TOO_SMALL: buf is untouched
/// - DT_ERR_CLOSED
/// - DT_ERR_FORKED
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_export_handshake(
    t: *mut dt_transport,
    buf: *mut c_void,
    cap: usize,
    len: *mut usize,
) -> dt_status {
    // SAFETY: the pointers are as the header says.
    unsafe {
        guard::on("dt_export_handshake", t, |transport| {
            Fill::new(buf, cap, len)?.write(&transport.export_handshake()?)
        })
    }
}

/// Checks a blob of dt_export_handshake of another transport as a whole, then does what
/// dt_add_remote_peer does with what it says. The check sum finds damage, not forgery: the blob is
/// untrusted input.
///
/// @param t        the transport.
/// @param peer_id  the name for the peer, as for dt_add_remote_peer.
/// @param blob     its bytes.
/// @param len      their number.
///
/// @return
/// - DT_OK: the peer is known
/// - DT_ERR_INVALID_ARG: t is not a transport; a pointer is NULL; peer_id is empty, too long or not
///   UTF-8; the blob is malformed or damaged
/// - DT_ERR_INCOMPATIBLE: the blob was made by a newer library, or the two nodes disagree in
///   backend, fingerprint or block length; dt_last_error names the field and both values
/// - any other status of dt_add_remote_peer
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_import_handshake(
    t: *mut dt_transport,
    peer_id: *const c_char,
    blob: *const c_void,
    len: usize,
) -> dt_status {
    // SAFETY: the pointers are as the header says.
    unsafe {
        guard::on("dt_import_handshake", t, |transport| {
            let peer_id = args::peer_id(peer_id)?;
            transport.import_handshake(peer_id, args::slice("blob", blob.cast(), "len", len)?)
        })
    }
}
