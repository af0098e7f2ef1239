//! Pull: the memory descriptor, agents, and reads that belong to a handle.

use std::ffi::{c_char, c_void};

use super::args::{self, Fill, Out};
use super::guard;
use super::handle::dt_transport;
use super::push::dt_xfer_id;
use super::status::{dt_status, dt_status_str};
use crate::transport::ReadState;

/// Where a posted read stands: DT_XFER_DONE, DT_XFER_PROC, or a negative DT_ERR_ code, which is why
/// it failed. DT_XFER_DONE and failures are final: a later check says the same.
pub type dt_xfer_state = i32;

/// The bytes are in the local blocks. The message of the read, if it has one, is on its way and
/// needs no further calls of this side.
pub const DT_XFER_DONE: dt_xfer_state = 0;
/// In progress.
pub const DT_XFER_PROC: dt_xfer_state = 1;

/// Copies the memory descriptor of the transport: what peers that read from it must know of its
/// blocks. It is MessagePack (https://github.com/msgpack/msgpack/blob/master/spec.md): an array
/// with one array [address, length in bytes, device id 0] for each block, every number in its
/// shortest form, as Python's msgspec.msgpack.encode makes it of a list of tuples. It takes 7 to 17
/// bytes a block; the size alone is known without making it.
///
/// @param t    the transport.
/// @param buf  where the bytes go; NULL is allowed if cap is 0.
/// @param cap  bytes at buf.
/// @param len  set to the size needed, also on DT_ERR_BUFFER_TOO_SMALL.
///
/// @return
/// - DT_OK
/// - DT_ERR_INVALID_ARG: t is not a transport; len is NULL; buf is NULL with a cap that is not 0
/// - DT_ERR_INCOMPATIBLE: the region has 2^32 blocks or more, which MessagePack cannot list
/// - DT_ERR_BUFFER_TOO_SMALL: buf is untouched
/// - DT_ERR_NO_MEMORY
/// - DT_ERR_CLOSED
/// - DT_ERR_FORKED
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_get_mem_descriptor(
    t: *mut dt_transport,
    buf: *mut c_void,
    cap: usize,
    len: *mut usize,
) -> dt_status {
    // SAFETY: the pointers are as the header says.
    unsafe {
        guard::on("dt_get_mem_descriptor", t, |transport| {
            let out = Fill::new(buf, cap, len)?;
            out.check(transport.mem_descriptor_len()?)?;
            out.write(&transport.mem_descriptor()?)
        })
    }
}

/// Makes an agent known by what it says of itself: its metadata, and the memory descriptor of the
/// blocks that may be read. The blocks may lie in any order, with gaps between them; indexes of a
/// transfer count them in the order of the list. The name that the agent gave itself becomes the
/// peer id for every other function, dt_remove_remote_peer, dt_peer_status and dt_write_blocks
/// included. A peer id that is known already gets a new registration, as with dt_add_remote_peer.
///
/// Both blobs are untrusted input: they are checked as a whole, in time that grows with their
/// length, before anything is remembered. A list of blocks that follow on each other takes no
/// memory, any other one takes 8 bytes a block.
///
/// @param t               the transport.
/// @param agent_metadata  what dt_get_agent_metadata, or NIXL's get_agent_metadata, gave there.
/// @param metadata_len    its bytes.
/// @param mem_descriptor  what dt_get_mem_descriptor gave there, or the same made by another program
///                        in any form that MessagePack allows.
/// @param descriptor_len  its bytes.
/// @param agent_name      where the agent's name goes, NUL-terminated; NULL is allowed if name_cap
///                        is 0.
/// @param name_cap        bytes at agent_name.
/// @param name_len        set to the bytes of the name, NUL included, on DT_OK and on
///                        DT_ERR_BUFFER_TOO_SMALL.
///
/// @return
/// - DT_OK: the agent is known
/// - DT_ERR_INVALID_ARG: t is not a transport; a pointer is NULL where it is needed; a blob is
///   malformed; the name in the metadata is empty, longer than 1000 bytes, or has a NUL in it; an
///   address is 0 or goes beyond 64 bits; with NIXL, the agent is this transport
/// - DT_ERR_INCOMPATIBLE: a block has another length than the local ones, lies on another device,
///   or is not memory that the agent's metadata speaks of; the metadata is of another backend,
///   version or host
/// - DT_ERR_BUFFER_TOO_SMALL: name_cap is too small; nothing was added, name_len says what is
///   needed
/// - DT_ERR_BUSY: as for dt_add_remote_peer
/// - DT_ERR_PEER_LOST: the agent's process is gone
/// - DT_ERR_UNAVAILABLE: a permission is missing
/// - DT_ERR_NO_MEMORY
/// - DT_ERR_BACKEND
/// - DT_ERR_CLOSED
/// - DT_ERR_FORKED
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_add_remote_agent(
    t: *mut dt_transport,
    agent_metadata: *const c_void,
    metadata_len: usize,
    mem_descriptor: *const c_void,
    descriptor_len: usize,
    agent_name: *mut c_char,
    name_cap: usize,
    name_len: *mut usize,
) -> dt_status {
    // SAFETY: the pointers are as the header says.
    unsafe {
        guard::on("dt_add_remote_agent", t, |transport| {
            let names = ["agent_name", "name_cap", "name_len"];
            let out = Fill::named(names, agent_name.cast(), name_cap, name_len)?;
            let metadata = agent_metadata.cast();
            let metadata = args::slice("agent_metadata", metadata, "metadata_len", metadata_len)?;
            let list = mem_descriptor.cast();
            let list = args::slice("mem_descriptor", list, "descriptor_len", descriptor_len)?;
            let name = transport.name_in(metadata)?;
            args::check_name("the name in the agent metadata", &name)?;
            let text = [name.as_bytes(), &[0]].concat();
            // What cannot be told is refused before the agent is known.
            out.check(text.len())?;
            transport.add_agent(&name, metadata, list)?;
            out.write(&text)
        })
    }
}

/// Starts to copy block remote_idxs[k] of an agent to local block local_idxs[k], for each k below
/// count, as dt_read_blocks does; but the read belongs to the id that is returned: dt_poll and
/// dt_wait drive it and never report it. Ask with dt_check_xfer_state, and free it in the end with
/// dt_release_xfer.
///
/// When all bytes have been read, notif_msg goes to the agent, which finds it once with
/// dt_get_new_notifs. It never goes for a read that failed, was cancelled, or was released before
/// the library had found it complete. Messages of one transport to one agent, under one peer id,
/// come in the order in which their reads completed or dt_send_notif was called.
///
/// While the agent has no room for the message, or this process has no memory or file descriptor to
/// send it with, the read stays DT_XFER_PROC, though its bytes are there; polling sends it when it
/// can. A read without a message does not wait.
///
/// With NIXL over sockets, UCX aborts the agent's process if this one is killed in the middle of a
/// read.
///
/// @param t            the transport.
/// @param agent_name   a peer id: a name that dt_add_remote_agent gave, or an id that was given to
///                     dt_add_remote_peer.
/// @param local_idxs   as for dt_read_blocks.
/// @param remote_idxs  as for dt_read_blocks.
/// @param count        number of blocks, at least 1.
/// @param notif_msg    notif_len bytes of any value, which are copied; NULL is allowed if notif_len
///                     is 0.
/// @param notif_len    0: no message; otherwise 1 to 65536.
/// @param out          where the id goes, written on DT_OK only.
///
/// @return
/// - DT_OK: the read has started; release it when it is not needed any more
/// - DT_ERR_INVALID_ARG: as for dt_read_blocks; notif_msg is NULL or notif_len too large
/// - DT_ERR_OUT_OF_RANGE: an index is too large; dt_last_error names it
/// - DT_ERR_NOT_FOUND: no peer has this name
/// - DT_ERR_PEER_LOST: the peer is gone or faulted
/// - DT_ERR_NO_MEMORY
/// - DT_ERR_BACKEND: the backend refused
/// - DT_ERR_CLOSED
/// - DT_ERR_FORKED
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_post_read(
    t: *mut dt_transport,
    agent_name: *const c_char,
    local_idxs: *const u32,
    remote_idxs: *const u32,
    count: usize,
    notif_msg: *const c_void,
    notif_len: usize,
    out: *mut dt_xfer_id,
) -> dt_status {
    // SAFETY: the pointers are as the header says.
    unsafe {
        guard::on("dt_post_read", t, |transport| {
            let out = Out::new("out", out)?;
            let agent = args::id("agent_name", agent_name)?;
            let local = args::slice("local_idxs", local_idxs, "count", count)?;
            let remote = args::slice("remote_idxs", remote_idxs, "count", count)?;
            let message = args::slice("notif_msg", notif_msg.cast(), "notif_len", notif_len)?;
            out.write(transport.post_read(agent, local, remote, message)?);
            Ok(())
        })
    }
}

/// Drives all work as dt_poll does, then tells where a posted read stands.
///
/// @param t      the transport.
/// @param id     what dt_post_read gave.
/// @param state  set to the state, on DT_OK only: DT_XFER_PROC; DT_XFER_DONE; or why the read
///               failed: DT_ERR_CANCELLED (with its peer), DT_ERR_PEER_LOST, DT_ERR_BACKEND, or
///               another status. In the last case the local blocks hold old bytes, new bytes, or
///               both.
///
/// @return
/// - DT_OK, also if the read has failed
/// - DT_ERR_INVALID_ARG: t is not a transport; state is NULL
/// - DT_ERR_NOT_FOUND: no posted read has this id, or it was released
/// - DT_ERR_CLOSED
/// - DT_ERR_FORKED
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_check_xfer_state(
    t: *mut dt_transport,
    id: dt_xfer_id,
    state: *mut dt_xfer_state,
) -> dt_status {
    // SAFETY: the pointers are as the header says.
    unsafe {
        guard::on("dt_check_xfer_state", t, |transport| {
            let state = Out::new("state", state)?;
            state.write(match transport.read_state(id)? {
                ReadState::Running => DT_XFER_PROC,
                ReadState::Ended(Ok(())) => DT_XFER_DONE,
                ReadState::Ended(Err(status)) => status as dt_xfer_state,
            });
            Ok(())
        })
    }
}

/// The name of a state.
///
/// @param state  any integer.
/// @return a static string, never NULL: "DONE", "PROC", or what dt_status_str says.
#[unsafe(no_mangle)]
pub extern "C" fn dt_xfer_state_str(state: dt_xfer_state) -> *const c_char {
    match state {
        DT_XFER_DONE => c"DONE".as_ptr(),
        DT_XFER_PROC => c"PROC".as_ptr(),
        other => dt_status_str(other),
    }
}

/// Frees a posted read; its id is unknown afterwards. One that is still in progress is given up as
/// by dt_cancel with DT_CANCEL_IMMEDIATE: no message goes to the agent, and what cannot be stopped
/// drains inside the library, so that its local blocks may still be written until dt_stats.draining
/// has fallen.
///
/// @param t   the transport.
/// @param id  what dt_post_read gave.
///
/// @return
/// - DT_OK
/// - DT_ERR_INVALID_ARG: t is not a transport
/// - DT_ERR_NOT_FOUND: no posted read has this id, or it was released
/// - DT_ERR_CLOSED
/// - DT_ERR_FORKED
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_release_xfer(t: *mut dt_transport, id: dt_xfer_id) -> dt_status {
    // SAFETY: the pointers are as the header says.
    unsafe { guard::on("dt_release_xfer", t, |transport| transport.release_read(id)) }
}
