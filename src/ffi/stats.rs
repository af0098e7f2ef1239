//! Counters.

use std::mem::{offset_of, size_of};
use std::ptr;

use super::args;
use super::guard;
use super::handle::dt_transport;
use super::status::dt_status;

/// Counters of one transport since it was made. Always: submitted = done + failed + cancelled +
/// inflight. A transfer that has ended counts by its outcome, whether it was reported yet or not.
#[repr(C)]
pub struct dt_stats {
    /// sizeof(dt_stats), set by the caller before the call.
    pub struct_size: usize,
    /// Transfers that were given an id.
    pub submitted: u64,
    /// Transfers that have moved all their bytes.
    pub done: u64,
    /// Transfers that have failed, except for being cancelled.
    pub failed: u64,
    /// Transfers that ended as DT_ERR_CANCELLED, or were dropped by the caller.
    pub cancelled: u64,
    /// Those of cancelled that can still touch memory.
    pub draining: u64,
    /// Transfers that have not ended.
    pub inflight: u64,
    /// Bytes of writes that were done.
    pub bytes_written: u64,
    /// Bytes of reads that were done.
    pub bytes_read: u64,
    /// Messages that were sent, with reads and alone.
    pub notifs_sent: u64,
    /// Messages that dt_get_new_notifs has handed out.
    pub notifs_received: u64,
    /// Calls of dt_poll and dt_wait.
    pub polls: u64,
    /// Peers that are known now, faulted ones included.
    pub peers: u64,
    /// How often there was no room for a message, here or at a peer, and what came and was thrown
    /// away because no transport would send it.
    pub notifs_refused: u64,
}

/// Bytes of the first published version.
const STATS_V1: usize = 104;

const _: () = {
    assert!(size_of::<dt_stats>() == 112);
    assert!(offset_of!(dt_stats, struct_size) == 0);
    assert!(offset_of!(dt_stats, submitted) == 8);
    assert!(offset_of!(dt_stats, done) == 16);
    assert!(offset_of!(dt_stats, failed) == 24);
    assert!(offset_of!(dt_stats, cancelled) == 32);
    assert!(offset_of!(dt_stats, draining) == 40);
    assert!(offset_of!(dt_stats, inflight) == 48);
    assert!(offset_of!(dt_stats, bytes_written) == 56);
    assert!(offset_of!(dt_stats, bytes_read) == 64);
    assert!(offset_of!(dt_stats, notifs_sent) == 72);
    assert!(offset_of!(dt_stats, notifs_received) == 80);
    assert!(offset_of!(dt_stats, polls) == 88);
    assert!(offset_of!(dt_stats, peers) == 96);
    assert!(offset_of!(dt_stats, notifs_refused) == 104);
};

/// Reads the counters. It also answers after dt_close.
///
/// @param t    the transport.
/// @param out  a struct whose struct_size is set; every other field is written, on DT_OK only. Of a
///             struct that is larger than the library's, the part that it does not know is set to
///             0.
///
/// @return
/// - DT_OK
/// - DT_ERR_INVALID_ARG: t is not a transport; out is NULL or misaligned; struct_size is less than
///   the first version's or more than 4096
/// - DT_ERR_FORKED
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_get_stats(t: *mut dt_transport, out: *mut dt_stats) -> dt_status {
    // SAFETY: the pointers are as the header says.
    unsafe {
        guard::on("dt_get_stats", t, |transport| {
            let size = args::struct_size("out", out, STATS_V1)?;
            let now = transport.stats()?;
            let transfers = now.transfers;
            let stats = dt_stats {
                struct_size: size,
                submitted: transfers.submitted,
                done: transfers.done,
                failed: transfers.failed,
                cancelled: transfers.cancelled,
                draining: transfers.draining,
                inflight: transfers.inflight,
                bytes_written: transfers.bytes_written,
                bytes_read: transfers.bytes_read,
                notifs_sent: now.messages.sent,
                notifs_received: now.messages.received,
                polls: now.polls,
                peers: now.peers,
                notifs_refused: now.messages.refused,
            };
            let known = size.min(size_of::<dt_stats>());
            let bytes = out.cast::<u8>();
            // SAFETY: `out` has `size` writable bytes, as it says itself; `stats` is ours.
            ptr::copy_nonoverlapping(ptr::from_ref(&stats).cast::<u8>(), bytes, known);
            ptr::write_bytes(bytes.add(known), 0, size - known);
            Ok(())
        })
    }
}
