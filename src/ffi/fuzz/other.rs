//! The other calls: making and closing transports, and asking them.

use std::ffi::{CStr, CString, c_char, c_void};
use std::mem::MaybeUninit;
use std::ptr;

use super::world::{Node, World, options};
use super::wrong::{Faults, SENTINEL, array, handle, last_error, pointer};
use crate::ffi::fingerprint::*;
use crate::ffi::handle::dt_transport;
use crate::ffi::handshake::dt_export_handshake;
use crate::ffi::log::{dt_log_level, dt_set_log_callback};
use crate::ffi::peers::dt_get_agent_metadata;
use crate::ffi::pull::{dt_get_mem_descriptor, dt_xfer_state_str};
use crate::ffi::stats::*;
use crate::ffi::status::*;
use crate::ffi::transport::*;
use crate::fuzz::Input;

type FillBuffer =
    unsafe extern "C" fn(*mut dt_transport, *mut c_void, usize, *mut usize) -> dt_status;

const FILLS: [FillBuffer; 3] = [
    dt_get_agent_metadata,
    dt_get_mem_descriptor,
    dt_export_handshake,
];
/// Nodes that were ever made.
const MOST_NODES: usize = 5;

impl Node {
    pub(super) fn ask_for_blobs(&mut self) {
        let [metadata, descriptor, handshake] = FILLS.map(|fill| {
            let mut len = 0;
            // SAFETY: a live handle; NULL asks for the size.
            let status = unsafe { fill(self.handle, ptr::null_mut(), 0, &raw mut len) };
            assert_eq!(status, DT_ERR_BUFFER_TOO_SMALL);
            let mut bytes = vec![0; len];
            // SAFETY: a live handle, and so much room.
            let status = unsafe { fill(self.handle, bytes.as_mut_ptr().cast(), len, &raw mut len) };
            assert_eq!(status, DT_OK, "{}", last_error());
            bytes
        });
        (self.metadata, self.descriptor, self.handshake) = (metadata, descriptor, handshake);
    }
}

impl World {
    pub(super) fn fill_buffer(&mut self, input: &mut Input) {
        let Some(node) = self.choose(input) else {
            return;
        };
        let mut faults = Faults::default();
        let node = &self.nodes[node];
        let which = input.below(3);
        let right = [&node.metadata, &node.descriptor, &node.handshake][which];
        let cap = [right.len() + 5, right.len(), right.len() - 1, 0, 7][input.below(5)];
        let mut buf = vec![0x55u8; right.len() + 5];
        let mut len = SENTINEL as usize;
        faults.add_if(cap < right.len(), DT_ERR_BUFFER_TOO_SMALL);
        faults.add_if(node.closed, DT_ERR_CLOSED);
        let t = handle(input, &mut faults, node.handle);
        let into = array(input, &mut faults, buf.as_mut_ptr(), cap);
        let len_at = pointer(input, &mut faults, &raw mut len);
        // SAFETY: a handle or what is none, and so much room.
        let status = unsafe { FILLS[which](t, into.cast(), cap, len_at) };
        let written = match faults.judge("filling a buffer", status, &[]) {
            true => {
                assert_eq!(len, right.len());
                assert!(buf.starts_with(right));
                len
            }
            false => {
                let told = status == DT_ERR_BUFFER_TOO_SMALL;
                assert_eq!(len, if told { right.len() } else { SENTINEL as usize });
                0
            }
        };
        assert!(buf[written..].iter().all(|byte| *byte == 0x55));
    }

    pub(super) fn stats(&mut self, input: &mut Input) {
        let Some(node) = self.choose(input) else {
            return;
        };
        let mut faults = Faults::default();
        let mut stats = [SENTINEL; 4096 / 8];
        let size = [size_of::<dt_stats>(), 104, 103, 0, 4096, 4097, 200][input.below(7)];
        faults.add_if(!(104..=4096).contains(&size), DT_ERR_INVALID_ARG);
        stats[0] = size as u64;
        let t = handle(input, &mut faults, self.nodes[node].handle);
        let out = pointer(input, &mut faults, stats.as_mut_ptr());
        // SAFETY: a handle or what is none, and room for the largest size that is taken.
        let status = unsafe { dt_get_stats(t, out.cast()) };
        let written = match faults.judge("dt_get_stats", status, &[]) {
            true => size / 8,
            false => 1,
        };
        assert_eq!(stats[0], size as u64);
        assert!(stats[written..].iter().all(|word| *word == SENTINEL));
        self.check_stats(node);
    }

    /// The counters are those of the model.
    pub(super) fn check_stats(&self, node: usize) {
        let node = &self.nodes[node];
        if node.destroyed {
            return;
        }
        let mut stats = MaybeUninit::<dt_stats>::zeroed();
        // SAFETY: a live handle, and a struct with its size in front, of integers alone.
        let stats = unsafe {
            (*stats.as_mut_ptr()).struct_size = size_of::<dt_stats>();
            assert_eq!(dt_get_stats(node.handle, stats.as_mut_ptr()), DT_OK);
            stats.assume_init()
        };
        assert_eq!(stats.submitted, node.ids.len() as u64);
        let ended = stats.done + stats.failed + stats.cancelled;
        assert_eq!(stats.submitted, ended + stats.inflight);
        assert_eq!(stats.draining, 0);
        assert_eq!(stats.peers, node.peers.len() as u64);
        assert_eq!(stats.polls, node.polls);
        if node.closed {
            assert_eq!(stats.inflight, 0);
        }
    }

    /// Accessors, and what needs no handle.
    pub(super) fn ask(&mut self, input: &mut Input) {
        let Some(node) = self.choose(input) else {
            return;
        };
        let mut faults = Faults::default();
        let node = &self.nodes[node];
        let t = handle(input, &mut faults, node.handle);
        let right = faults.is_none();
        let text = |text: *const c_char| {
            assert!(!text.is_null());
            // SAFETY: a string of the library.
            unsafe { CStr::from_ptr(text) }
                .to_str()
                .expect("UTF-8")
                .to_owned()
        };
        // SAFETY: a handle or what is none.
        let (blocks, block_len, base, name, digits, kind) = unsafe {
            (
                dt_num_blocks(t),
                dt_block_len(t),
                dt_base_addr(t),
                text(dt_agent_name(t)),
                text(dt_config_fingerprint(t)),
                dt_backend_kind(t),
            )
        };
        if right {
            assert_eq!(
                (blocks, block_len, &name),
                (node.blocks, node.block_len, &node.name)
            );
            assert!(base == node.base() && (digits.is_empty() || digits == "015abd7f5cc57a2d"));
            assert_eq!(kind as i32, dt_backend::DT_BACKEND_LOCAL as i32);
        } else {
            assert_eq!((blocks, block_len, base), (0, 0, 0));
            assert!(name.is_empty() && digits.is_empty());
        }
        let number = input.u64() as i32;
        text(dt_status_str(number));
        text(dt_xfer_state_str(number));
        if !cfg!(fuzzing) {
            // The log is the process's, and other tests look at it.
            return;
        }
        let level = number % 8;
        let mut max_level = MaybeUninit::<dt_log_level>::uninit();
        // SAFETY: an enum of the size of an i32, of any value; the callback takes what comes.
        unsafe {
            max_level.as_mut_ptr().cast::<i32>().write(level);
            dt_set_log_callback(Some(logged), ptr::null_mut(), max_level);
        }
    }

    pub(super) fn fingerprint(&mut self, input: &mut Input) {
        let len = input.below(40);
        let text: Vec<u8> = input
            .take(len)
            .iter()
            .copied()
            .filter(|byte| *byte != 0)
            .collect();
        let text = CString::new(text).expect("no NUL");
        let mut faults = Faults::default();
        let mut out = [0x55 as c_char; 17];
        let into = pointer(input, &mut faults, out.as_mut_ptr());
        let status = match input.one_in(8) {
            // SAFETY: NULL, and room for the digits.
            true => unsafe { dt_compute_fingerprint(ptr::null(), into) },
            // SAFETY: a string, and room for the digits.
            false => unsafe { dt_compute_fingerprint(text.as_ptr(), into) },
        };
        if status == DT_OK {
            assert!(faults.is_none());
            // SAFETY: it was written, with its NUL.
            let digits = unsafe { CStr::from_ptr(into) };
            assert!([0, 16].contains(&digits.to_bytes().len()));
            // SAFETY: two strings.
            assert!(unsafe { dt_fingerprints_compatible(into, digits.as_ptr()) });
        } else {
            assert_eq!(status, DT_ERR_INVALID_ARG, "{}", last_error());
            assert_eq!(out, [0x55; 17]);
        }
        // SAFETY: a string and NULL.
        let fits = unsafe { dt_fingerprints_compatible(text.as_ptr(), ptr::null()) };
        assert_eq!(fits, text.to_str().is_ok());
    }

    /// Each of these is refused, and leaves nothing behind.
    pub(super) fn create_wrongly(&mut self, input: &mut Input) {
        let mut faults = Faults::default();
        let mut memory = vec![0u8; 4096];
        let (mut base, mut blocks, mut block_len) = (memory.as_mut_ptr(), 4, 1024);
        let mut options = options();
        let (long, wrong) = (CString::new([b'n'; 1001]).expect("no NUL"), c"\xff");
        let mut perhaps: &[_] = &[];
        match input.below(16) {
            0 => base = ptr::null_mut(),
            1 => blocks = 0,
            2 => block_len = 0,
            3 => blocks = usize::MAX,
            4 => options.struct_size = [0, 79, 4097, usize::MAX][input.below(4)],
            5 => options.agent_name = long.as_ptr(),
            6 => options.agent_name = c"".as_ptr(),
            7 => options.agent_name = wrong.as_ptr(),
            8 => options.config_json = [c"[]", c"{", wrong, c"{\"a\":01}"][input.below(4)].as_ptr(),
            9 => options.poll_budget_us = 1_000_001 + u32::from(input.u16()),
            10 => options.nixl_num_threads = 65,
            11 => {
                options.region_has_fd = MaybeUninit::new(true);
                options.region_fd = [-1, 0, 1 << 20, i32::MIN][input.below(4)];
                options.region_offset = input.u64();
                perhaps = &[DT_ERR_BACKEND];
            }
            12 => {
                // SAFETY: an enum of the size of an i32, of any value.
                unsafe {
                    options
                        .backend
                        .as_mut_ptr()
                        .cast::<i32>()
                        .write(3 + input.below(9) as i32)
                }
            }
            13 => {
                options.abi_version = 1 << 16;
                faults.add(DT_ERR_INCOMPATIBLE);
            }
            14 => base = memory.as_mut_ptr().wrapping_add(1 << 46),
            _ => {
                let mut out = ptr::null_mut::<dt_transport>();
                let at = (&raw mut out).wrapping_byte_add(1);
                let options = &raw const options;
                // SAFETY: nothing is written through a pointer that is not aligned.
                let status = unsafe { dt_create(base.cast(), 4, 1024, options, at) };
                return assert_eq!(status, DT_ERR_INVALID_ARG);
            }
        }
        faults.add(DT_ERR_INVALID_ARG);
        let mut out = ptr::null_mut();
        let options = &raw const options;
        // SAFETY: the memory, where it is some, and the options outlive the call, which fails.
        let status = unsafe { dt_create(base.cast(), blocks, block_len, options, &raw mut out) };
        assert!(!faults.judge("dt_create", status, perhaps));
        assert!(out.is_null());
    }

    pub(super) fn create_another(&mut self, input: &mut Input) {
        if self.nodes.len() < MOST_NODES {
            let block_len = [self.nodes[0].block_len, 64][input.below(2)];
            self.create(1 + input.below(6), block_len, input);
        }
    }

    /// The program writes to its own memory.
    pub(super) fn change_blocks(&mut self, input: &mut Input) {
        let node = input.below(8) % self.nodes.len();
        let block = input.below(self.nodes[node].blocks);
        let is_it = |at: &(usize, usize)| *at == (node, block);
        let in_use = |xfer: &super::world::Xfer| xfer.from.iter().chain(&xfer.to).any(is_it);
        if !self.xfers.iter().any(in_use) {
            self.fill(node, block);
        }
    }

    pub(super) fn close_or_destroy(&mut self, input: &mut Input) {
        let choice = input.below(8);
        let Some(node) = self.choose(input) else {
            return;
        };
        let mut faults = Faults::default();
        match choice {
            // Most programs go on.
            0..4 => return,
            7 => {
                // SAFETY: it is never used again.
                unsafe { dt_destroy(self.nodes[node].handle) };
                self.nodes[node].destroyed = true;
            }
            _ => {
                let t = handle(input, &mut faults, self.nodes[node].handle);
                // SAFETY: a handle or what is none.
                let status = unsafe { dt_close(t, input.below(3) as u32) };
                if !faults.judge("dt_close", status, &[]) {
                    return;
                }
            }
        }
        self.notes.receiver_is_gone(node);
        if !self.nodes[node].closed {
            self.closed(node);
        }
        // SAFETY: neither is a transport.
        unsafe {
            dt_destroy(ptr::null_mut());
            dt_destroy(ptr::from_ref(&SENTINEL).cast_mut().cast());
        }
    }
}

unsafe extern "C" fn logged(_level: dt_log_level, message: *const c_char, _user: *mut c_void) {
    // SAFETY: a string during the call.
    let line = unsafe { CStr::from_ptr(message) };
    let line = line.to_str().expect("the log is UTF-8");
    assert!(!line.is_empty() && !line.contains('\n'));
}
