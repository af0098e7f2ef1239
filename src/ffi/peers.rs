//! What a peer needs to know of us, and the peers that we know.

use std::ffi::{c_char, c_void};

use super::args::{self, Fill};
use super::guard;
use super::handle::dt_transport;
use super::status::dt_status;

/// Gives the metadata that a peer needs to reach this transport. Send it there by whatever control
/// plane you have, together with dt_base_addr, dt_num_blocks and dt_block_len. It does not change
/// during the life of the transport.
///
/// To ask for the size, pass NULL and 0.
///
/// @param t    the transport.
/// @param buf  where the bytes go; NULL is allowed if cap is 0. Untouched unless DT_OK is returned.
/// @param cap  bytes of room at buf.
/// @param len  set to the bytes needed, on DT_OK and on DT_ERR_BUFFER_TOO_SMALL.
///
/// @return
/// - DT_OK
/// - DT_ERR_INVALID_ARG: t is not a transport; len is NULL; buf is NULL and cap is not 0
/// - DT_ERR_BUFFER_TOO_SMALL: cap is less than *len
/// - DT_ERR_CLOSED
/// - DT_ERR_FORKED
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_get_agent_metadata(
    t: *mut dt_transport,
    buf: *mut c_void,
    cap: usize,
    len: *mut usize,
) -> dt_status {
    // SAFETY: the pointers are as the header says.
    unsafe {
        guard::on("dt_get_agent_metadata", t, |transport| {
            Fill::new(buf, cap, len)?.write(&transport.agent_metadata()?)
        })
    }
}

/// Makes a peer known, so that blocks can be written to it and read from it. The peer does not have
/// to know us. The time and the memory that this takes do not grow with num_blocks.
///
/// A peer id that is known already is replaced: the old registration is removed as by
/// dt_remove_remote_peer, and nothing of it is used again. That is how a peer that was restarted is
/// met, also under the same agent name. If adding fails, everything is as before, the old
/// registration included.
///
/// LOCAL needs the right to open /proc/PID/fd of the peer: the same user and group, and a peer that
/// is dumpable (PR_SET_DUMPABLE) and has no capabilities that this process lacks, or
/// CAP_SYS_PTRACE; both processes in one PID namespace; Linux 5.3 or newer, and a seccomp profile
/// that permits pidfd_open.
///
/// Adding oneself works with LOCAL (and is DT_ERR_INVALID_ARG with NIXL).
///
/// @param t               the transport.
/// @param peer_id         the name that this caller gives to the peer, 1 to 1000 bytes of UTF-8.
/// @param agent_metadata  the bytes that dt_get_agent_metadata gave to the peer. They are checked
///                        as what a stranger sends.
/// @param metadata_len    their number.
/// @param base_addr       the peer's dt_base_addr, or the address of a later block of its region.
/// @param num_blocks      number of the peer's blocks from there on, at least 1; it may differ from
///                        ours.
/// @param block_len       bytes of one block; must equal ours, and with LOCAL that which the peer's
///                        transport was made with.
///
/// @return
/// - DT_OK
/// - DT_ERR_INVALID_ARG: t is not a transport; a pointer is NULL; peer_id is empty, too long or not
///   UTF-8; the metadata is malformed; a number is 0 or the range leaves the address space
/// - DT_ERR_INCOMPATIBLE: block_len differs; the metadata comes from another host, PID namespace,
///   backend or format version; the range is not inside what the metadata describes
/// - DT_ERR_UNAVAILABLE: the operating system does not let this process reach the peer's memory;
///   dt_last_error names the missing permission
/// - DT_ERR_PEER_LOST: the peer's process is gone, or it has closed its transport. With NIXL the
///   first transfer finds that out; or this call does, with DT_ERR_INCOMPATIBLE, where UCX looks for
///   the process at once: it does not tell one that has ended from one that it does not reach
/// - DT_ERR_BUSY: with a backend that cannot hold the old registration, which still touches
///   memory, beside the new one. Poll and try again. Neither LOCAL nor NIXL returns it now
/// - DT_ERR_NO_MEMORY: memory, file descriptors, or the peer's room for connections ran out
/// - DT_ERR_BACKEND: the operating system or the backend refused
/// - DT_ERR_CLOSED
/// - DT_ERR_FORKED
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_add_remote_peer(
    t: *mut dt_transport,
    peer_id: *const c_char,
    agent_metadata: *const c_void,
    metadata_len: usize,
    base_addr: u64,
    num_blocks: usize,
    block_len: usize,
) -> dt_status {
    // SAFETY: the pointers are as the header says.
    unsafe {
        guard::on("dt_add_remote_peer", t, |transport| {
            let id = args::peer_id(peer_id)?;
            let metadata = args::slice::<u8>(
                "agent_metadata",
                agent_metadata.cast(),
                "metadata_len",
                metadata_len,
            )?;
            transport.add_peer(id, metadata, base_addr, num_blocks as u64, block_len as u64)
        })
    }
}

/// Forgets a peer: refuses new work for it at once and cancels its transfers.
///
/// Each of its ids that was not reported yet is reported once by a later dt_poll or dt_wait, for
/// this peer id (also after the id was added again) or for every peer, when it has stopped touching
/// memory: with its outcome if that was known already, otherwise as failed with DT_ERR_CANCELLED.
/// The resources of the peer are released then. This call does not wait for it.
///
/// With NIXL, UCX keeps sockets of an endpoint that was closed: 1 on each side when it uses what it
/// likes best on one host, 2 with UCX_TLS=tcp, until one of both transports is closed or its
/// process ends. An add that NIXL refuses costs the same. So do not remove and add a peer that is
/// well again and again.
///
/// @param t        the transport.
/// @param peer_id  the name given to dt_add_remote_peer.
///
/// @return
/// - DT_OK
/// - DT_ERR_INVALID_ARG: t is not a transport; peer_id is NULL, empty, too long or not UTF-8
/// - DT_ERR_NOT_FOUND: no peer has this id
/// - DT_ERR_CLOSED
/// - DT_ERR_FORKED
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_remove_remote_peer(
    t: *mut dt_transport,
    peer_id: *const c_char,
) -> dt_status {
    // SAFETY: the pointers are as the header says.
    unsafe {
        guard::on("dt_remove_remote_peer", t, |transport| {
            transport.remove_peer(args::peer_id(peer_id)?)
        })
    }
}

/// Tells how a peer is. A peer is faulted by one decisive error (its process is gone, or it has
/// closed its transport) or by three transfers that failed in a row with no success between. Work
/// for a faulted peer is refused with DT_ERR_PEER_LOST until it is removed or added again. With
/// LOCAL the death of a peer is noticed by dt_poll and dt_wait, also with nothing in flight; with
/// NIXL by the transfers that are in flight, or else by the next one.
///
/// @param t        the transport.
/// @param peer_id  the name given to dt_add_remote_peer.
///
/// @return
/// - DT_OK: the peer is healthy
/// - DT_ERR_INVALID_ARG: t is not a transport; peer_id is NULL, empty, too long or not UTF-8
/// - DT_ERR_NOT_FOUND: no peer has this id
/// - DT_ERR_CLOSED, DT_ERR_FORKED, DT_ERR_INTERNAL: about the call
/// - any other status: the peer is faulted, and this is why: DT_ERR_PEER_LOST, or the status of the
///   last of its failed transfers. dt_last_error has the details
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_peer_status(t: *mut dt_transport, peer_id: *const c_char) -> dt_status {
    // SAFETY: the pointers are as the header says.
    unsafe {
        guard::on("dt_peer_status", t, |transport| {
            transport.peer_status(args::peer_id(peer_id)?)
        })
    }
}
