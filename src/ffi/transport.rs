//! The transport handle: made, closed, destroyed, and asked what it is.

use std::ffi::{c_char, c_void};
use std::mem::{MaybeUninit, offset_of, size_of};
use std::time::Duration;

use super::args::{self, Out};
use super::guard;
use super::handle::{Handle, dt_transport, handle, take};
use super::status::{dt_status, version};
use crate::backend::Kind;
use crate::backend::nixl::NixlConfig;
use crate::backend::open::BackendChoice;
use crate::error::{Result, fail};
use crate::region::{LocalRegion, Region};
use crate::transport::{Config, RegionFd, Transport};

/// What moves the bytes.
#[derive(Clone, Copy)]
#[repr(i32)]
pub enum dt_backend {
    /// The environment variable DT_BACKEND decides ("local" or "nixl"); where it is not set, NIXL
    /// if it can be loaded, else LOCAL. The log says at level info which one it is, and why; it
    /// warns (DT_LOG_WARN) when it is LOCAL though nixl_lib_dir or DT_NIXL_LIB_DIR names a place
    /// for NIXL.
    DT_BACKEND_AUTO = 0,
    /// Copies between processes of one host (one kernel, one PID namespace).
    DT_BACKEND_LOCAL = 1,
    /// NIXL over UCX, between hosts, also with peers that speak NIXL without this library. Its
    /// library is looked for at run time; where it is missing: DT_ERR_UNAVAILABLE.
    DT_BACKEND_NIXL = 2,
}

/// How a transport should be. Start with DT_OPTIONS_INIT and set what you need: zero in every field
/// but the first means the default. The library keeps no pointer into it.
#[repr(C)]
pub struct dt_options {
    /// sizeof(dt_options), as the caller was compiled.
    pub struct_size: usize,
    /// DT_ABI_VERSION of the header that the caller was compiled with; another major version than
    /// the library's is refused with DT_ERR_INCOMPATIBLE. 0: not checked.
    pub abi_version: u32,
    /// What moves the bytes.
    pub backend: MaybeUninit<dt_backend>,
    /// Name of this node, 1 to 1000 bytes, unique among the nodes that it meets. NULL: generated.
    pub agent_name: *const c_char,
    /// Model configuration as the text of a JSON object, from which the fingerprint is computed as
    /// by dt_compute_fingerprint. NULL: no fingerprint.
    pub config_json: *const c_char,
    /// NIXL: folder of libnixl_capi.so, or that file. NULL or "": the environment variable
    /// DT_NIXL_LIB_DIR, else the path that the dynamic loader searches.
    pub nixl_lib_dir: *const c_char,
    /// NIXL: name of the plugin. NULL: "UCX".
    pub nixl_plugin: *const c_char,
    /// NIXL: number of the plugin's worker threads, at most 64. 0: none. UCX uses them for requests
    /// of 1024 runs and more, and this library posts smaller ones: with UCX they bring nothing.
    /// dt_create wants 64 file descriptors free, and 12 for each of them (DT_ERR_NO_MEMORY).
    pub nixl_num_threads: u32,
    /// NIXL: true lets the engine run a thread of its own, which looks every 5 ms for what has come
    /// in. False: no background thread, all work is done inside dt_poll and dt_wait. LOCAL never
    /// has a background thread.
    pub progress_thread: MaybeUninit<bool>,
    /// LOCAL: the file descriptor whose memory the region is, if region_has_fd. It is duplicated:
    /// the caller's own may be closed as soon as dt_create has returned. The region must be a
    /// MAP_SHARED mapping of it. Peers map the descriptor, which is the fastest way to the memory,
    /// if it is a memfd (of normal or huge pages) that is sealed with F_SEAL_SHRINK, as
    /// dt_region_alloc makes it. Otherwise, and for a region without a descriptor, they use
    /// process_vm_writev and process_vm_readv, which need besides that neither
    /// kernel.yama.ptrace_scope nor a seccomp profile forbids them.
    pub region_fd: i32,
    /// LOCAL: offset in bytes of the region's base in region_fd.
    pub region_offset: u64,
    /// LOCAL: true if region_fd and region_offset are meant; false: they are not looked at.
    pub region_has_fd: MaybeUninit<bool>,
    /// Time in microseconds that one dt_poll works before it returns, up to 1000000 (1 s); it may
    /// take as much longer as one small piece of work needs. 0: 500.
    pub poll_budget_us: u32,
}

/// Bytes of the first published version.
const OPTIONS_V1: usize = 80;

const _: () = {
    assert!(size_of::<dt_options>() == 80);
    assert!(offset_of!(dt_options, struct_size) == 0);
    assert!(offset_of!(dt_options, abi_version) == 8);
    assert!(offset_of!(dt_options, backend) == 12);
    assert!(offset_of!(dt_options, agent_name) == 16);
    assert!(offset_of!(dt_options, config_json) == 24);
    assert!(offset_of!(dt_options, nixl_lib_dir) == 32);
    assert!(offset_of!(dt_options, nixl_plugin) == 40);
    assert!(offset_of!(dt_options, nixl_num_threads) == 48);
    assert!(offset_of!(dt_options, progress_thread) == 52);
    assert!(offset_of!(dt_options, region_fd) == 56);
    assert!(offset_of!(dt_options, region_offset) == 64);
    assert!(offset_of!(dt_options, region_has_fd) == 72);
    assert!(offset_of!(dt_options, poll_budget_us) == 76);
};

const DEFAULT_POLL_BUDGET_US: u32 = 500;
const MAX_POLL_BUDGET_US: u32 = 1_000_000;

/// Each worker thread of NIXL has resources of its own.
const MAX_NIXL_THREADS: u32 = 64;

/// Copies the caller's options as far as this version knows them; NULL stands for the defaults.
///
/// # Safety
/// `options` is NULL or misaligned, or points to a struct of the size that stands in it, which
/// nobody changes meanwhile.
unsafe fn copy_options(options: *const dt_options) -> Result<dt_options> {
    let mut known = MaybeUninit::<dt_options>::zeroed();
    if !options.is_null() {
        // SAFETY: as the caller promises.
        let size = unsafe { args::struct_size("options", options, OPTIONS_V1) }?;
        // SAFETY: both sides have that many bytes, and ours are nobody else's.
        unsafe {
            std::ptr::copy_nonoverlapping(
                options.cast::<u8>(),
                known.as_mut_ptr().cast::<u8>(),
                size.min(size_of::<dt_options>()),
            );
        }
        // SAFETY: `options` has `size` bytes, as the caller promises.
        if let Some(at) = unsafe { args::unknown_tail(options, size) } {
            fail!(
                Incompatible,
                "byte {at} of the options is set, but version {}.{}.{} knows only {} bytes; \
                 use a newer library or leave the newer fields 0",
                version::MAJOR,
                version::MINOR,
                version::PATCH,
                size_of::<dt_options>()
            );
        }
    }
    // SAFETY: all bytes are initialised, and every field takes any bytes.
    Ok(unsafe { known.assume_init() })
}

/// Checks options and says them in Rust.
///
/// # Safety
/// The strings are NULL or NUL-terminated, and nobody changes them meanwhile.
unsafe fn config(options: &dt_options, region: LocalRegion) -> Result<Config> {
    let major = options.abi_version >> 16;
    if options.abi_version != 0 && major != version::MAJOR {
        fail!(
            Incompatible,
            "the caller was compiled for major version {major} of the library, but this is {}; \
             compile with this library's header",
            version::MAJOR
        );
    }
    // SAFETY: `copy_options` has initialised the bytes, and the enum is repr(i32).
    let backend = match unsafe { args::enum_value(options.backend) } {
        x if x == dt_backend::DT_BACKEND_AUTO as i32 => BackendChoice::Auto,
        x if x == dt_backend::DT_BACKEND_LOCAL as i32 => BackendChoice::Local,
        x if x == dt_backend::DT_BACKEND_NIXL as i32 => BackendChoice::Nixl,
        other => fail!(
            InvalidArg,
            "options->backend is {other}, but only 0, 1 and 2 are backends"
        ),
    };
    // SAFETY: NULL or NUL-terminated, as the caller promises.
    let string = |name: &str, ptr| unsafe { args::optional_text(name, ptr) };
    let agent_name = string("options->agent_name", options.agent_name)?;
    if let Some(name) = agent_name {
        args::check_name("options->agent_name", name)?;
    }
    let config_json = string("options->config_json", options.config_json)?;
    let lib_dir = string("options->nixl_lib_dir", options.nixl_lib_dir)?;
    let plugin = string("options->nixl_plugin", options.nixl_plugin)?;

    // SAFETY: `copy_options` has initialised the byte.
    let has_fd = unsafe { args::bool_value(options.region_has_fd) };
    // SAFETY: as above.
    let progress_thread = unsafe { args::bool_value(options.progress_thread) };
    let poll_budget_us = match options.poll_budget_us {
        0 => DEFAULT_POLL_BUDGET_US,
        budget if budget <= MAX_POLL_BUDGET_US => budget,
        budget => fail!(
            InvalidArg,
            "options->poll_budget_us is {budget}, but at most {MAX_POLL_BUDGET_US} are allowed"
        ),
    };

    if options.nixl_num_threads > MAX_NIXL_THREADS {
        fail!(
            InvalidArg,
            "options->nixl_num_threads is {}, but at most {MAX_NIXL_THREADS} are allowed",
            options.nixl_num_threads
        );
    }

    Ok(Config {
        region,
        region_fd: has_fd.then_some(RegionFd {
            fd: options.region_fd,
            offset: options.region_offset,
        }),
        backend,
        nixl: NixlConfig {
            lib_dir: lib_dir.map(str::to_owned),
            plugin: plugin.map(str::to_owned),
            num_threads: options.nixl_num_threads,
            progress_thread,
        },
        agent_name: agent_name.map(str::to_owned),
        config_json: config_json.map(str::to_owned),
        poll_budget: Duration::from_micros(poll_budget_us.into()),
    })
}

/// Makes a transport for a region: num_blocks blocks of block_len bytes, one after the other, block
/// i at base + i * block_len.
///
/// The region is the caller's memory. The library never frees it. It must stay mapped, readable and
/// writable, until dt_close has returned DT_OK or dt_destroy has returned. Nothing of it is read or
/// written before the first transfer.
///
/// @param base        start of the region, not NULL; alignment does not matter.
/// @param num_blocks  number of blocks, at least 1. Block indexes are 32 bits wide, so that blocks
///                    from 2^32 on cannot be named.
/// @param block_len   bytes of one block, at least 1; num_blocks * block_len must fit the address
///                    space.
/// @param options     see dt_options; NULL: all defaults. It is only read during the call.
/// @param out         where the handle goes, written on DT_OK only. The caller owns it and gives it
///                    to dt_destroy.
///
/// @return
/// - DT_OK
/// - DT_ERR_INVALID_ARG: base or out is NULL; a number is 0 or too large; options are malformed;
///   config_json is no JSON object; the region is not mapped for reading and writing, or not as
///   region_fd says; the environment variable DT_BACKEND is needed and holds nonsense
/// - DT_ERR_INCOMPATIBLE: the options are for another major version, or set what this version does
///   not know
/// - DT_ERR_UNAVAILABLE: the backend asked for cannot be loaded or is not permitted
/// - DT_ERR_BACKEND: the operating system or the backend refused
/// - DT_ERR_NO_MEMORY: memory or file descriptors ran out
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_create(
    base: *mut c_void,
    num_blocks: usize,
    block_len: usize,
    options: *const dt_options,
    out: *mut *mut dt_transport,
) -> dt_status {
    guard::call("dt_create", || {
        // SAFETY: `out` is as the header says.
        let out = unsafe { Out::new("out", out) }?;
        let region = Region::new(base.addr() as u64, num_blocks as u64, block_len as u64)?;
        // SAFETY: `options`, its strings and the region are as the header says.
        let config = unsafe { config(&copy_options(options)?, LocalRegion::new(region)) }?;
        let transport = Transport::create(config)?;
        out.write(Handle::give_out(transport)?);
        Ok(())
    })
}

/// Closes a transport: refuses new work, cancels what is in flight, gives up peers and
/// registrations, and waits until nothing of this transport touches the region any more. Ids that
/// were not reported yet end here and are never reported.
///
/// On DT_OK the library neither reads nor writes the region again, and its file descriptors,
/// mappings and threads are gone: the caller may unmap the region in the next line. With the LOCAL
/// backend that holds for peers too: closing revokes their access, what a peer was writing or
/// reading has ended when this call returns DT_OK, and later attempts fail on the peer's side with
/// DT_ERR_PEER_LOST. With NIXL the engine decides: UCX over shared memory lets a peer read and
/// write these addresses of this process until it learns of the close. Nothing that matters may
/// come to lie there before all peers have removed this one.
///
/// With NIXL it also waits until messages that were sent have arrived, for which their receivers
/// have to poll.
///
/// On DT_ERR_TIMEOUT something could still touch the region (or, with NIXL, a message has not
/// arrived; dt_last_error says which): keep it mapped, then call again or call dt_destroy.
/// dt_last_error names what was waited for, with LOCAL the process that was in the middle of a
/// copy. The transport is closed for every other purpose.
///
/// Calling it again is DT_OK, also from several threads. A dt_wait that is under way in another
/// thread ends early with DT_ERR_CLOSED. Afterwards every function on the handle returns
/// DT_ERR_CLOSED, except dt_close, dt_destroy, dt_get_stats and the accessors.
///
/// @param t           the transport.
/// @param timeout_ms  longest time to wait, in milliseconds; 0: try once.
///
/// @return
/// - DT_OK
/// - DT_ERR_INVALID_ARG: t is not a transport
/// - DT_ERR_TIMEOUT
/// - DT_ERR_FORKED
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_close(t: *mut dt_transport, timeout_ms: u32) -> dt_status {
    // SAFETY: `t` is as the header says.
    unsafe {
        guard::on("dt_close", t, |transport| {
            transport.close(Duration::from_millis(timeout_ms.into()))
        })
    }
}

/// Closes a transport if that was not done yet, by force where needed, and frees it. It must be the
/// last use of the handle: no other thread may be inside a call on it, nor start one.
///
/// The region may be unmapped when it returns. With LOCAL its addresses are safe to use again at
/// once (with NIXL see dt_close), but there is one case that no library can prevent. If dt_close
/// had to return DT_ERR_TIMEOUT with the LOCAL backend, then a peer process stands still (SIGSTOP,
/// a debugger, a frozen cgroup) in the middle of copying one piece of at most 1 MiB. If that peer
/// has the region mapped, it may write the rest of that one piece into the same memory file when it
/// runs again, and nothing after it; by process_vm it writes nothing more. dt_destroy waits at most
/// 1 s more for such peers, then logs an error that names one. A caller that wants to use the
/// memory file again, and not only the addresses, kills the process first.
///
/// In a forked child it gives back what the child has, and leaves the parent's alone.
///
/// @param t  the transport, or NULL, which does nothing. What is no transport is left alone, and
///           dt_last_error says so.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_destroy(t: *mut dt_transport) {
    if t.is_null() {
        return;
    }
    guard::value("dt_destroy", (), || {
        // SAFETY: `t` is as the header says.
        drop(unsafe { take(t) }?);
        Ok(())
    });
}

/// Address of the region, as given to dt_create: what a peer needs for dt_add_remote_peer.
///
/// @param t  the transport; closed ones answer too.
/// @return the address; 0 if t is not a transport.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_base_addr(t: *const dt_transport) -> u64 {
    guard::value("dt_base_addr", 0, || {
        // SAFETY: `t` is as the header says.
        Ok(unsafe { handle(t) }?.transport.region().base())
    })
}

/// Number of blocks of the region, as given to dt_create.
///
/// @param t  the transport; closed ones answer too.
/// @return the number; 0 if t is not a transport.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_num_blocks(t: *const dt_transport) -> usize {
    guard::value("dt_num_blocks", 0, || {
        // SAFETY: `t` is as the header says.
        Ok(unsafe { handle(t) }?.transport.region().num_blocks() as usize)
    })
}

/// Bytes of one block, as given to dt_create.
///
/// @param t  the transport; closed ones answer too.
/// @return the number; 0 if t is not a transport.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_block_len(t: *const dt_transport) -> usize {
    guard::value("dt_block_len", 0, || {
        // SAFETY: `t` is as the header says.
        Ok(unsafe { handle(t) }?.transport.region().block_len() as usize)
    })
}

/// Fingerprint of the model configuration, see dt_compute_fingerprint.
///
/// @param t  the transport; closed ones answer too.
/// @return 16 lower-case hex digits, or "" if there was no configuration or if t is not a
///         transport. Never NULL. Valid until dt_destroy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_config_fingerprint(t: *const dt_transport) -> *const c_char {
    guard::value("dt_config_fingerprint", c"".as_ptr(), || {
        // SAFETY: `t` is as the header says.
        Ok(unsafe { handle(t) }?.fingerprint.as_ptr())
    })
}

/// Name of this node: the one from the options, or the one that was generated.
///
/// @param t  the transport; closed ones answer too.
/// @return the name; "" if t is not a transport. Never NULL. Valid until dt_destroy.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_agent_name(t: *const dt_transport) -> *const c_char {
    guard::value("dt_agent_name", c"".as_ptr(), || {
        // SAFETY: `t` is as the header says.
        Ok(unsafe { handle(t) }?.agent_name.as_ptr())
    })
}

/// The backend that serves this transport.
///
/// @param t  the transport; closed ones answer too.
/// @return never DT_BACKEND_AUTO for a transport; DT_BACKEND_AUTO if t is not a transport.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_backend_kind(t: *const dt_transport) -> dt_backend {
    guard::value("dt_backend_kind", dt_backend::DT_BACKEND_AUTO, || {
        // SAFETY: `t` is as the header says.
        Ok(match unsafe { handle(t) }?.transport.backend_kind() {
            Kind::Local => dt_backend::DT_BACKEND_LOCAL,
            Kind::Nixl => dt_backend::DT_BACKEND_NIXL,
        })
    })
}
