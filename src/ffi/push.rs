//! Transfers: submitted, reported, waited for, cancelled.

use std::ffi::c_char;
use std::mem::{MaybeUninit, offset_of, size_of};
use std::time::Duration;

use super::args::{self, Out, OutArray};
use super::guard;
use super::handle::dt_transport;
use super::status::{DT_OK, dt_status};
use crate::backend::Direction;
use crate::error::{Result, fail};
use crate::transport::{CancelMode, Completion, Transport};

/// Names one transfer of one transport. Never 0, and never used again by that transport.
pub type dt_xfer_id = u64;

/// How a transfer ended. An element of the caller's array: it never grows.
#[repr(C)]
pub struct dt_completion {
    /// The id that the submission gave.
    pub id: dt_xfer_id,
    /// As given at submission.
    pub user_data: u64,
    /// Bytes that were moved; 0 unless status is DT_OK.
    pub bytes: u64,
    /// DT_OK: the bytes of a write can be read at the target; those of a read are in the local
    /// region. Otherwise why it failed: the destination blocks may hold old bytes, new bytes, or
    /// both. In either case the library will not touch the blocks of this transfer again.
    ///
    /// dt_last_error is not about this. What went wrong is in the log: at level DT_LOG_WARN the
    /// first failure of a peer and what faulted it, at level DT_LOG_DEBUG every one.
    pub status: dt_status,
    /// 0.
    pub reserved: u32,
}

const _: () = {
    assert!(size_of::<dt_completion>() == 32);
    assert!(offset_of!(dt_completion, id) == 0);
    assert!(offset_of!(dt_completion, user_data) == 8);
    assert!(offset_of!(dt_completion, bytes) == 16);
    assert!(offset_of!(dt_completion, status) == 24);
    assert!(offset_of!(dt_completion, reserved) == 28);
};

impl From<Completion> for dt_completion {
    fn from(completion: Completion) -> Self {
        dt_completion {
            id: completion.id,
            user_data: completion.user_data,
            bytes: completion.bytes,
            status: completion
                .result
                .map_or_else(|status| status as dt_status, |()| DT_OK),
            reserved: 0,
        }
    }
}

/// What dt_cancel does with a transfer that cannot be stopped at once.
#[derive(Clone, Copy)]
#[repr(i32)]
pub enum dt_cancel_mode {
    /// Forget it: its blocks may still be touched for a while.
    DT_CANCEL_IMMEDIATE = 0,
    /// Leave it in flight and say so.
    DT_CANCEL_WAIT = 1,
}

/// Starts to copy local block local_idxs[k] to the peer's block remote_idxs[k], for each k below
/// count.
///
/// Everything is checked first, and if anything is wrong, nothing is moved and no id exists. The
/// call never waits and never copies in bulk: later calls of dt_poll or dt_wait move the bytes, all
/// but those of a few small blocks (64 KiB together) with nothing before them, which may be copied
/// at once. It takes time for each index, whatever the length of a block. Neighbouring blocks are
/// merged, so lists in ascending order are the fastest. An index may be repeated; where remote_idxs
/// repeats, one of the blocks written there is found, and it is not said which one. When a
/// transport is its own peer, no block may be both a source and a destination of one transfer:
/// what such a destination holds in the end is not said.
///
/// Until the id has been reported, the local blocks must not be changed, and the peer must not use
/// the remote ones. Transfers are not ordered among each other.
///
/// @param t            the transport.
/// @param peer_id      the name given to dt_add_remote_peer.
/// @param local_idxs   count indexes, each below dt_num_blocks. The array is the caller's again
///                     when the call returns; no thread may change it meanwhile.
/// @param remote_idxs  count indexes, each below the num_blocks of the peer; as above.
/// @param count        number of blocks, at least 1.
/// @param user_data    any number; it comes back in the completion.
/// @param out          where the id goes, written on DT_OK only.
///
/// @return
/// - DT_OK: the transfer is in flight. It ends in exactly one way: reported by dt_poll or dt_wait,
///   dropped by dt_cancel, or ended by dt_close
/// - DT_ERR_INVALID_ARG: t is not a transport; a pointer is NULL or misaligned; count is 0, or so
///   large that the bytes cannot be counted; peer_id is empty, too long or not UTF-8
/// - DT_ERR_OUT_OF_RANGE: an index is too large; dt_last_error names it
/// - DT_ERR_NOT_FOUND: no peer has this id
/// - DT_ERR_PEER_LOST: the peer is gone or faulted
/// - DT_ERR_NO_MEMORY
/// - DT_ERR_BACKEND: the backend refused
/// - DT_ERR_CLOSED
/// - DT_ERR_FORKED
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_write_blocks(
    t: *mut dt_transport,
    peer_id: *const c_char,
    local_idxs: *const u32,
    remote_idxs: *const u32,
    count: usize,
    user_data: u64,
    out: *mut dt_xfer_id,
) -> dt_status {
    let lists = Lists {
        peer_id,
        local_idxs,
        remote_idxs,
        count,
    };
    // SAFETY: the pointers are as the header says.
    unsafe {
        guard::on("dt_write_blocks", t, |transport| {
            submit(transport, Direction::Write, &lists, user_data, out)
        })
    }
}

/// Starts to copy the peer's block remote_idxs[k] to local block local_idxs[k], for each k below
/// count. As dt_write_blocks in everything but the direction: local blocks are written, the peer's
/// are read. Until the id has been reported, the local blocks must not be used, and the peer must
/// not change the remote ones.
///
/// @param t            the transport.
/// @param peer_id      the name given to dt_add_remote_peer.
/// @param local_idxs   as for dt_write_blocks.
/// @param remote_idxs  as for dt_write_blocks.
/// @param count        number of blocks, at least 1.
/// @param user_data    any number; it comes back in the completion.
/// @param out          where the id goes, written on DT_OK only.
///
/// @return
/// - DT_OK: the transfer is in flight, as for dt_write_blocks
/// - DT_ERR_INVALID_ARG: t is not a transport; a pointer is NULL or misaligned; count is 0, or so
///   large that the bytes cannot be counted; peer_id is empty, too long or not UTF-8
/// - DT_ERR_OUT_OF_RANGE: an index is too large; dt_last_error names it
/// - DT_ERR_NOT_FOUND: no peer has this id
/// - DT_ERR_PEER_LOST: the peer is gone or faulted
/// - DT_ERR_NO_MEMORY
/// - DT_ERR_BACKEND: the backend refused
/// - DT_ERR_CLOSED
/// - DT_ERR_FORKED
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_read_blocks(
    t: *mut dt_transport,
    peer_id: *const c_char,
    local_idxs: *const u32,
    remote_idxs: *const u32,
    count: usize,
    user_data: u64,
    out: *mut dt_xfer_id,
) -> dt_status {
    let lists = Lists {
        peer_id,
        local_idxs,
        remote_idxs,
        count,
    };
    // SAFETY: the pointers are as the header says.
    unsafe {
        guard::on("dt_read_blocks", t, |transport| {
            submit(transport, Direction::Read, &lists, user_data, out)
        })
    }
}

struct Lists {
    peer_id: *const c_char,
    local_idxs: *const u32,
    remote_idxs: *const u32,
    count: usize,
}

/// # Safety
/// The pointers are as the header says.
unsafe fn submit(
    transport: &Transport,
    direction: Direction,
    lists: &Lists,
    user_data: u64,
    out: *mut dt_xfer_id,
) -> Result<()> {
    // SAFETY: as the caller promises.
    let (out, peer, local, remote) = unsafe {
        (
            Out::new("out", out)?,
            args::peer_id(lists.peer_id)?,
            args::slice("local_idxs", lists.local_idxs, "count", lists.count)?,
            args::slice("remote_idxs", lists.remote_idxs, "count", lists.count)?,
        )
    };
    out.write(transport.submit(direction, peer, local, remote, user_data)?);
    Ok(())
}

/// Drives all work for a bounded time (dt_options.poll_budget_us) and reports transfers that have
/// ended, each one once. It never waits for a peer. Work of every peer is driven, whichever one is
/// named, also with cap 0 and with nothing in flight (with LOCAL the death of a peer is noticed
/// then, too). With NIXL over sockets a call can take longer: a peer that keeps up is sent all that
/// UCX holds for it, some 8 MiB at most.
///
/// When an id is reported, with success or failure, the library will not read or write the blocks
/// of its transfer again on either side.
///
/// @param t        the transport.
/// @param peer_id  report only transfers of this peer; those of others stay for their own poll. A
///                 name that is not known (any more) is not an error. NULL: every peer.
/// @param buf      where completions go; NULL is allowed if cap is 0. Elements from *count on are
///                 untouched.
/// @param cap      number of elements at buf. What does not fit stays for the next call.
/// @param count    set to the number of completions that were written, on DT_OK only.
///
/// @return
/// - DT_OK, also if nothing has ended and if transfers have failed: each completion has its own
///   status
/// - DT_ERR_INVALID_ARG: t is not a transport; count is NULL; buf is misaligned, or NULL with a cap
///   that is not 0; peer_id is empty, too long or not UTF-8. Nothing was reported
/// - DT_ERR_CLOSED
/// - DT_ERR_FORKED
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_poll(
    t: *mut dt_transport,
    peer_id: *const c_char,
    buf: *mut dt_completion,
    cap: usize,
    count: *mut usize,
) -> dt_status {
    // SAFETY: the pointers are as the header says.
    unsafe {
        guard::on("dt_poll", t, |transport| {
            report(peer_id, buf, cap, count, |peer, sink| {
                transport.poll(peer, cap, sink)
            })
        })
    }
}

/// Polls as dt_poll does until something was reported or the time has run out. Other threads may
/// use the transport meanwhile. With cap 0 it returns when there is something to report.
///
/// It sleeps between polls, the longer the less has happened: from a second after the last news on,
/// and with nothing in flight, waiting costs less than 1 % of a core. With NIXL over sockets, what
/// a peer begins after a second of silence can wait 10 ms for this side.
///
/// @param t           the transport.
/// @param peer_id     as for dt_poll.
/// @param buf         as for dt_poll.
/// @param cap         as for dt_poll.
/// @param timeout_ms  longest time to wait, in milliseconds; 0: as dt_poll.
/// @param count       set to the number of completions that were written, on DT_OK only; 0 if the
///                    time has run out.
///
/// @return
/// - DT_OK, also if the time has run out
/// - DT_ERR_INVALID_ARG: as for dt_poll
/// - DT_ERR_CLOSED: also if another thread has closed the transport meanwhile
/// - DT_ERR_FORKED
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_wait(
    t: *mut dt_transport,
    peer_id: *const c_char,
    buf: *mut dt_completion,
    cap: usize,
    timeout_ms: u32,
    count: *mut usize,
) -> dt_status {
    let timeout = Duration::from_millis(timeout_ms.into());
    // SAFETY: the pointers are as the header says.
    unsafe {
        guard::on("dt_wait", t, |transport| {
            report(peer_id, buf, cap, count, |peer, sink| {
                transport.wait(peer, cap, timeout, sink)
            })
        })
    }
}

/// Checks the arguments, so that bad ones consume no completion, then lets `collect` fill `buf`.
///
/// # Safety
/// The pointers are as the header says.
unsafe fn report(
    peer_id: *const c_char,
    buf: *mut dt_completion,
    cap: usize,
    count: *mut usize,
    collect: impl FnOnce(Option<&str>, &mut dyn FnMut(Completion)) -> Result<usize>,
) -> Result<()> {
    // SAFETY: as the caller promises.
    let (count, peer, buf) = unsafe {
        (
            Out::new("count", count)?,
            args::peer_scope(peer_id)?,
            OutArray::new("buf", buf, "cap", cap)?,
        )
    };
    let mut filled = 0;
    collect(peer, &mut |completion| {
        buf.write(filled, completion.into());
        filled += 1;
    })?;
    count.write(filled);
    Ok(())
}

/// Cancels transfers. It never waits.
///
/// DT_CANCEL_IMMEDIATE: the ids are forgotten at once and never reported. A transfer that cannot be
/// stopped now drains inside the library and is counted in dt_stats.draining; its blocks may still
/// be touched until then.
///
/// DT_CANCEL_WAIT: ids that have ended, or can be stopped now, are dropped and never reported. The
/// others are written to still_inflight, stay in flight, and are reported by dt_poll exactly once,
/// as done if they completed. An id that is not in that list will not touch memory again.
///
/// With LOCAL every transfer stops at once, so that both modes do the same and no list is ever
/// filled. A write that was stopped may have written some of its blocks.
///
/// A posted read (dt_post_read) that is dropped is released, also if it had ended; one that stays
/// in flight ends as DT_XFER_DONE, or otherwise, and is released by the caller.
///
/// Ids that are unknown or have been reported, and repetitions of an id, are ignored.
///
/// @param t               the transport.
/// @param ids             count ids; NULL is allowed if count is 0.
/// @param count           their number; 0 is allowed.
/// @param mode            see above.
/// @param still_inflight  room for count ids; it may be the array ids itself. May be NULL for
///                        DT_CANCEL_IMMEDIATE, and if count is 0.
/// @param still_count     set to the number of ids in still_inflight, on DT_OK only. May be NULL
///                        for DT_CANCEL_IMMEDIATE, which sets it to 0.
///
/// @return
/// - DT_OK
/// - DT_ERR_INVALID_ARG: t is not a transport; a pointer is misaligned, or NULL where it is needed;
///   mode is unknown. Nothing was cancelled
/// - DT_ERR_NO_MEMORY: nothing was cancelled
/// - DT_ERR_CLOSED
/// - DT_ERR_FORKED
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_cancel(
    t: *mut dt_transport,
    ids: *const dt_xfer_id,
    count: usize,
    mode: MaybeUninit<dt_cancel_mode>,
    still_inflight: *mut dt_xfer_id,
    still_count: *mut usize,
) -> dt_status {
    // SAFETY: the pointers are as the header says, and an argument is always initialised.
    unsafe {
        guard::on("dt_cancel", t, |transport| {
            let mode = match args::enum_value(mode) {
                x if x == dt_cancel_mode::DT_CANCEL_IMMEDIATE as i32 => CancelMode::Immediate,
                x if x == dt_cancel_mode::DT_CANCEL_WAIT as i32 => CancelMode::Wait,
                other => fail!(
                    InvalidArg,
                    "mode is {other}, but only 0 and 1 are cancel modes"
                ),
            };
            let needed = mode == CancelMode::Wait;
            let still_count = if needed || !still_count.is_null() {
                Some(Out::new("still_count", still_count)?)
            } else {
                None
            };
            let room = if needed || !still_inflight.is_null() {
                count
            } else {
                0
            };
            let list = OutArray::new("still_inflight", still_inflight, "count", room)?;

            let still = transport.cancel(args::slice("ids", ids, "count", count)?, mode)?;
            for (at, id) in still.iter().enumerate() {
                list.write(at, *id);
            }
            if let Some(still_count) = still_count {
                still_count.write(still.len());
            }
            Ok(())
        })
    }
}

#[cfg(test)]
mod tests {
    use std::ptr::null_mut;

    use super::super::handle::{Handle, take};
    use super::*;
    use crate::backend::sim::Script;
    use crate::transport::tests::transport;

    // LOCAL stops every transfer at once, so only a script fills the list.
    #[test]
    fn cancel_lists_what_stays_in_flight() {
        let script = Script::default();
        let transport = transport(&script);
        transport.add_peer("a", b"m", 1 << 30, 64, 4096).unwrap();
        let mut ids = [0; 4];
        for id in &mut ids {
            *id = transport
                .submit(Direction::Write, "a", &[1], &[2], 5)
                .unwrap();
        }
        let t = Handle::give_out(transport).unwrap();
        let mode = |mode: dt_cancel_mode| MaybeUninit::new(mode);
        let mut still = [77; 4];
        let mut count = 9;
        // SAFETY: the arrays have the lengths that are given, and the handle is taken back last.
        unsafe {
            // The first two cannot be stopped, the others can.
            script.set_stubborn_for(2);
            let wait = mode(dt_cancel_mode::DT_CANCEL_WAIT);
            let list = still.as_mut_ptr();
            assert_eq!(
                dt_cancel(t, ids.as_ptr(), 3, wait, list, &raw mut count),
                DT_OK
            );
            assert_eq!((count, still), (2, [ids[0], ids[1], 77, 77]));

            // The list may take the place of the ids.
            script.set_stubborn_for(1);
            let mut both = [ids[3], ids[0]];
            let place = both.as_mut_ptr();
            assert_eq!(dt_cancel(t, place, 2, wait, place, &raw mut count), DT_OK);
            assert_eq!((count, both[0]), (1, ids[3]));

            script.set_stubborn(true);
            let now = mode(dt_cancel_mode::DT_CANCEL_IMMEDIATE);
            assert_eq!(
                dt_cancel(t, &raw const ids[1], 1, now, null_mut(), &raw mut count),
                DT_OK
            );
            assert_eq!(count, 0);

            // What stayed in flight is reported, what was dropped is not.
            for id in ids {
                script.end(id, Ok(()));
            }
            let mut done: [dt_completion; 4] = MaybeUninit::zeroed().assume_init();
            assert_eq!(
                dt_poll(t, std::ptr::null(), done.as_mut_ptr(), 4, &raw mut count),
                DT_OK
            );
            assert_eq!((count, done[0].id, done[0].status), (1, ids[3], DT_OK));
            drop(take(t));
        }
    }
}
