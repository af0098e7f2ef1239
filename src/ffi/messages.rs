//! Messages between transports.

use std::ffi::{c_char, c_void};
use std::mem::{offset_of, size_of};

use super::args::{self, Arena, Out, OutArray};
use super::guard;
use super::handle::dt_transport;
use super::status::dt_status;
use crate::error::fail;

/// One message that has come. An element of the caller's array: it never grows.
#[repr(C)]
pub struct dt_notif {
    /// The name that the sender gave itself, NUL-terminated UTF-8 of 1 to 1000 bytes, in the
    /// caller's arena. It is a claim: with LOCAL every program of the same user can send, with NIXL
    /// everyone who reaches the network address. What comes under any other name is thrown away,
    /// and counted in dt_stats.notifs_refused.
    pub agent_name: *const c_char,
    /// Its bytes, in the caller's arena, not aligned.
    pub msg: *const c_void,
    /// Their number.
    pub msg_len: usize,
}

const _: () = {
    assert!(size_of::<dt_notif>() == 24);
    assert!(offset_of!(dt_notif, agent_name) == 0);
    assert!(offset_of!(dt_notif, msg) == 8);
    assert!(offset_of!(dt_notif, msg_len) == 16);
};

/// Drives all work as dt_poll does, then hands out messages that have come: of reads of this
/// transport's blocks that have completed (dt_post_read), and of dt_send_notif. Each is handed out
/// once; those of one sender come in the order in which it sent them. The sender need not be known
/// here. Messages of other programs over NIXL may have any length.
///
/// What is not asked for is kept: with LOCAL 1 MiB of each sender, which is told DT_ERR_BUSY then,
/// and loses nothing; with NIXL, which cannot make senders wait, 65536 messages or 64 MiB in all,
/// and what comes then is thrown away. dt_stats.notifs_refused counts both.
///
/// @param t           the transport.
/// @param buf         where messages go; NULL is allowed if cap is 0. Elements from *count on are
///                    untouched.
/// @param cap         number of elements at buf.
/// @param arena       where names and bytes of the messages go; NULL is allowed if arena_cap is 0.
///                    What buf points to is valid until the caller uses the arena for something
///                    else.
/// @param arena_cap   bytes at arena. A message needs those of the sender's name, 1, and its own.
///                    What does not fit stays for the next call.
/// @param count       set to the number of messages, on DT_OK only.
/// @param arena_used  set to the bytes used, on DT_OK, and to the bytes that the next message needs,
///                    on DT_ERR_BUFFER_TOO_SMALL.
///
/// @return
/// - DT_OK, also if no message has come
/// - DT_ERR_INVALID_ARG: t is not a transport; a pointer is misaligned, or NULL where it is needed.
///   Nothing was handed out
/// - DT_ERR_BUFFER_TOO_SMALL: the arena is too small for the next message, which stays
/// - DT_ERR_CLOSED
/// - DT_ERR_FORKED
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_get_new_notifs(
    t: *mut dt_transport,
    buf: *mut dt_notif,
    cap: usize,
    arena: *mut c_void,
    arena_cap: usize,
    count: *mut usize,
    arena_used: *mut usize,
) -> dt_status {
    // SAFETY: the pointers are as the header says.
    unsafe {
        guard::on("dt_get_new_notifs", t, |transport| {
            let (count, used) = (
                Out::new("count", count)?,
                Out::new("arena_used", arena_used)?,
            );
            let buf = OutArray::new("buf", buf, "cap", cap)?;
            let mut arena = Arena::new("arena", arena.cast(), "arena_cap", arena_cap)?;
            let (mut filled, mut lacking) = (0, None);
            transport.receive(cap, &mut |message| {
                let (name, bytes) = (message.sender.as_bytes(), &message.bytes);
                let needed = name.len() + 1 + bytes.len();
                if needed > arena.left() {
                    lacking = Some(needed);
                    return false;
                }
                let agent_name = arena.push(name).cast();
                arena.push(&[0]);
                let notif = dt_notif {
                    agent_name,
                    msg: arena.push(bytes).cast(),
                    msg_len: bytes.len(),
                };
                buf.write(filled, notif);
                filled += 1;
                true
            })?;
            if let (0, Some(needed)) = (filled, lacking) {
                used.write(needed);
                fail!(
                    BufferTooSmall,
                    "arena_cap is {arena_cap}, but the next message needs {needed} bytes; arena_used says so too"
                );
            }
            count.write(filled);
            used.write(arena.used());
            Ok(())
        })
    }
}

/// Sends a message that goes with no read. It never waits.
///
/// On DT_OK the message reaches the peer once, after all that were sent to it before, even if this
/// transport is not used any more, is closed or destroyed, or its process ends. A peer that dies
/// takes what it has not asked for with it. With NIXL a process that ends without dt_close can take
/// the last messages with it, those that the peer had not taken in by then.
///
/// @param t           the transport.
/// @param agent_name  a peer id, as for dt_post_read. That is the name that this side gave to the
///                    peer; dt_notif.agent_name is the one that a sender gave to itself.
/// @param msg         len bytes of any value, which are copied.
/// @param len         1 to 65536.
///
/// @return
/// - DT_OK: the message is on its way
/// - DT_ERR_INVALID_ARG: t is not a transport; agent_name is NULL, empty, too long or not UTF-8;
///   msg is NULL; len is 0 or too large
/// - DT_ERR_NOT_FOUND: no peer has this name
/// - DT_ERR_BUSY: the peer has no room for messages now, because it has not asked for those that it
///   has; messages of reads wait for that; or, with NIXL, the connection is still being made, for
///   which the peer has to poll, too. Nothing was sent; poll, and try again
/// - DT_ERR_PEER_LOST: the peer is gone or faulted
/// - DT_ERR_NO_MEMORY
/// - DT_ERR_UNAVAILABLE: a permission is missing
/// - DT_ERR_BACKEND
/// - DT_ERR_CLOSED
/// - DT_ERR_FORKED
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_send_notif(
    t: *mut dt_transport,
    agent_name: *const c_char,
    msg: *const c_void,
    len: usize,
) -> dt_status {
    // SAFETY: the pointers are as the header says.
    unsafe {
        guard::on("dt_send_notif", t, |transport| {
            let agent = args::id("agent_name", agent_name)?;
            transport.send(agent, args::slice("msg", msg.cast(), "len", len)?)
        })
    }
}
