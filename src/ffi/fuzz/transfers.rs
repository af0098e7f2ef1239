//! Transfers: submitted, reported, cancelled, asked for and released.

use std::collections::BTreeSet;
use std::mem::MaybeUninit;
use std::ptr;

use super::world::{Block, World, Xfer};
use super::wrong::{Faults, Name, SENTINEL, array, handle, pointer};
use crate::ffi::pull::*;
use crate::ffi::push::*;
use crate::ffi::status::*;
use crate::fuzz::Input;

/// Two lists of indexes, and what they mean.
struct Lists {
    local: Vec<u32>,
    remote: Vec<u32>,
    /// As it is told.
    count: usize,
    here: Vec<Block>,
    there: Vec<Block>,
}

impl World {
    fn lists(
        &self,
        input: &mut Input,
        faults: &mut Faults,
        node: usize,
        peer: Option<&String>,
    ) -> Lists {
        let peer = peer.and_then(|name| self.nodes[node].peers.get(name));
        faults.add_if(peer.is_none(), DT_ERR_NOT_FOUND);
        let there = peer.map_or(1, |peer| peer.blocks.len());
        let own = self.nodes[node].blocks;
        let count = [1, 2, 3, input.below(24)][input.below(4)];
        let mut index = |limit: usize| match input.below(64) {
            63 => [limit as u32, limit as u32 + 1, u32::MAX, 1 << 31][input.below(4)],
            other => (other % limit) as u32,
        };
        let local: Vec<u32> = (0..count).map(|_| index(own)).collect();
        let remote: Vec<u32> = (0..count).map(|_| index(there)).collect();
        let beyond = |list: &[u32], limit: usize| list.iter().any(|at| *at as usize >= limit);
        let out_of_range = beyond(&local, own) || beyond(&remote, there);
        faults.add_if(out_of_range, DT_ERR_OUT_OF_RANGE);
        faults.add_if(count == 0, DT_ERR_INVALID_ARG);
        let told = match input.below(64) {
            63 => usize::MAX,
            62 => isize::MAX as usize / 4 + 1,
            _ => count,
        };
        faults.add_if(told != count, DT_ERR_INVALID_ARG);
        let there = match peer {
            Some(peer) if !out_of_range => remote
                .iter()
                .map(|at| (peer.node, peer.blocks[*at as usize]))
                .collect(),
            _ => Vec::new(),
        };
        Lists {
            here: local.iter().map(|at| (node, *at as usize)).collect(),
            local,
            remote,
            count: told,
            there,
        }
    }

    pub(super) fn submit(&mut self, input: &mut Input) {
        let mut faults = Faults::default();
        let Some((node, id, name)) = self.choose_with_name(input, &mut faults) else {
            return;
        };
        let mut lists = self.lists(input, &mut faults, node, name.as_ref());
        faults.add_if(self.nodes[node].closed, DT_ERR_CLOSED);
        let gone = self.may_be_lost(node, name.as_ref());
        let t = handle(input, &mut faults, self.nodes[node].handle);
        let local = array(input, &mut faults, lists.local.as_mut_ptr(), lists.count);
        let remote = array(input, &mut faults, lists.remote.as_mut_ptr(), lists.count);
        let mut xfer = SENTINEL;
        let out = pointer(input, &mut faults, &raw mut xfer);
        let user_data = input.u64();
        let read = input.one_in(2);
        let submit = if read {
            dt_read_blocks
        } else {
            dt_write_blocks
        };
        // SAFETY: a handle or what is none, a string, lists of that length or of none that can be,
        // and room for the result.
        let status = unsafe { submit(t, id.as_ptr(), local, remote, lists.count, user_data, out) };
        // The lists are ours again.
        lists.local.fill(u32::MAX);
        lists.remote.fill(u32::MAX);
        if !faults.judge("dt_write_blocks or dt_read_blocks", status, gone) {
            return assert_eq!(xfer, SENTINEL);
        }
        let (from, to) = match read {
            true => (lists.there, lists.here),
            false => (lists.here, lists.there),
        };
        self.submitted(Xfer {
            id: xfer,
            owner: node,
            peer: name.expect("it was taken"),
            user_data,
            from,
            to,
            bytes: Vec::new(),
            mixed: false,
            orphaned: false,
            posted: false,
            note: None,
            state: None,
        });
    }

    pub(super) fn post_read(&mut self, input: &mut Input) {
        let mut faults = Faults::default();
        let Some((node, id, name)) = self.choose_with_name(input, &mut faults) else {
            return;
        };
        let mut lists = self.lists(input, &mut faults, node, name.as_ref());
        let target = name
            .as_ref()
            .and_then(|name| self.nodes[node].peers.get(name));
        let target = target.map_or(0, |peer| peer.node);
        faults.add_if(self.nodes[node].closed, DT_ERR_CLOSED);
        let gone = self.may_be_lost(node, name.as_ref());
        let mut message = self.message(input, &mut faults, true);
        let t = handle(input, &mut faults, self.nodes[node].handle);
        let local = array(input, &mut faults, lists.local.as_mut_ptr(), lists.count);
        let remote = array(input, &mut faults, lists.remote.as_mut_ptr(), lists.count);
        let bytes = array(input, &mut faults, message.as_mut_ptr(), message.len());
        let mut xfer = SENTINEL;
        let out = pointer(input, &mut faults, &raw mut xfer);
        // SAFETY: as above, and the bytes of a vector.
        let status = unsafe {
            let (id, bytes) = (id.as_ptr(), bytes.cast());
            dt_post_read(t, id, local, remote, lists.count, bytes, message.len(), out)
        };
        if !faults.judge("dt_post_read", status, gone) {
            return assert_eq!(xfer, SENTINEL);
        }
        let note = (!message.is_empty()).then(|| self.notes.perhaps(node, target, &message));
        message.fill(0);
        lists.local.fill(u32::MAX);
        self.submitted(Xfer {
            id: xfer,
            owner: node,
            peer: name.expect("it was taken"),
            user_data: 0,
            from: lists.there,
            to: lists.here,
            bytes: Vec::new(),
            mixed: false,
            orphaned: false,
            posted: true,
            note,
            state: None,
        });
    }

    /// What a call may answer because a peer has closed.
    pub(super) fn may_be_lost(&self, node: usize, peer: Option<&String>) -> &'static [dt_status] {
        let peer = peer.and_then(|name| self.nodes[node].peers.get(name));
        match peer.is_some_and(|peer| self.is_gone(peer)) {
            true => &[DT_ERR_PEER_LOST],
            false => &[],
        }
    }

    pub(super) fn poll(&mut self, input: &mut Input) {
        self.poll_or_wait(input, None);
    }

    pub(super) fn wait(&mut self, input: &mut Input) {
        // Sleeping is slow, and mostly there is nothing to wait for.
        let timeout = u32::from(input.one_in(8));
        self.poll_or_wait(input, Some(timeout));
    }

    fn poll_or_wait(&mut self, input: &mut Input, timeout: Option<u32>) {
        let Some(node) = self.choose(input) else {
            return;
        };
        let mut faults = Faults::default();
        let mut scope = None;
        let id = match input.one_in(2) {
            true => Name::choose(input),
            false => Name::Null,
        };
        if !id.as_ptr().is_null() {
            scope = id.valid(&mut faults);
        }
        faults.add_if(self.nodes[node].closed, DT_ERR_CLOSED);
        let mut buf = [const { MaybeUninit::<dt_completion>::uninit() }; 8];
        let cap = input.below(9);
        let t = handle(input, &mut faults, self.nodes[node].handle);
        let into = array(input, &mut faults, buf.as_mut_ptr().cast(), cap);
        let mut count = SENTINEL as usize;
        let out = pointer(input, &mut faults, &raw mut count);
        // SAFETY: a handle or what is none, a string or NULL, and room for so many completions.
        let status = unsafe {
            match timeout {
                None => dt_poll(t, id.as_ptr(), into, cap, out),
                Some(timeout) => dt_wait(t, id.as_ptr(), into, cap, timeout, out),
            }
        };
        if !faults.judge("dt_poll or dt_wait", status, &[]) {
            return assert_eq!(count, SENTINEL as usize);
        }
        self.nodes[node].polls += 1;
        assert!(count <= cap);
        self.reported(node, scope.as_deref(), &buf[..count]);
    }

    /// Each of them was in flight, ends as it may, and is not heard of again.
    pub(super) fn reported(
        &mut self,
        node: usize,
        scope: Option<&str>,
        completions: &[MaybeUninit<dt_completion>],
    ) {
        for completion in completions {
            // SAFETY: the call says that it has written it.
            let completion = unsafe { completion.assume_init_ref() };
            let is_it = |xfer: &Xfer| xfer.owner == node && xfer.id == completion.id;
            let at = self
                .xfers
                .iter()
                .position(is_it)
                .expect("reported, but not in flight");
            let xfer = self.xfers.swap_remove(at);
            assert!(!xfer.posted, "a posted read was reported");
            assert!(scope.is_none_or(|scope| scope == xfer.peer));
            assert_eq!(completion.user_data, xfer.user_data);
            assert_eq!(completion.reserved, 0);
            self.ended(&xfer, completion.status);
            let moved = xfer.bytes.len() as u64;
            let bytes = if completion.status == DT_OK { moved } else { 0 };
            assert_eq!(completion.bytes, bytes);
        }
    }

    fn ended(&mut self, xfer: &Xfer, status: dt_status) {
        let remote = xfer
            .from
            .iter()
            .chain(&xfer.to)
            .find(|(node, _)| *node != xfer.owner);
        let gone = remote.is_some_and(|(node, _)| self.nodes[*node].closed);
        match status {
            DT_OK => {}
            DT_ERR_CANCELLED => assert!(xfer.orphaned, "nobody has cancelled it"),
            DT_ERR_PEER_LOST => assert!(gone, "its peer is there"),
            other => panic!("a transfer ended as {other}"),
        }
        self.stopped(xfer, status == DT_OK);
    }

    pub(super) fn cancel(&mut self, input: &mut Input) {
        let Some(node) = self.choose(input) else {
            return;
        };
        let mut faults = Faults::default();
        let own: Vec<u64> = self.nodes[node].ids.iter().copied().collect();
        let count = input.below(6);
        let mut pick = || match input.below(32) {
            31 => input.u64(),
            at => own.iter().rev().nth(at % 8).copied().unwrap_or(0),
        };
        let mut ids: Vec<u64> = (0..count).map(|_| pick()).collect();
        let mode = [0, 1, 1, 2, -1, 0][input.below(6)];
        faults.add_if(!(0..2).contains(&mode), DT_ERR_INVALID_ARG);
        faults.add_if(self.nodes[node].closed, DT_ERR_CLOSED);
        let t = handle(input, &mut faults, self.nodes[node].handle);
        let list = array(input, &mut faults, ids.as_mut_ptr(), count);
        let mut still = vec![SENTINEL; count];
        let mut still_count = SENTINEL as usize;
        let (still_at, count_at) = match mode {
            // Nobody has to look at what is always nothing.
            0 if input.one_in(2) => (ptr::null_mut(), ptr::null_mut()),
            0 => (still.as_mut_ptr(), &raw mut still_count),
            _ => (
                array(input, &mut faults, still.as_mut_ptr(), count),
                pointer(input, &mut faults, &raw mut still_count),
            ),
        };
        // SAFETY: a handle or what is none, ids, and room for as many.
        let status = unsafe { dt_cancel(t, list, count, any_mode(mode), still_at, count_at) };
        if !faults.judge("dt_cancel", status, &[]) {
            return assert_eq!(still_count, SENTINEL as usize);
        }
        if !count_at.is_null() {
            // LOCAL stops everything at once.
            assert_eq!(still_count, 0);
        }
        for id in ids.into_iter().collect::<BTreeSet<_>>() {
            self.dropped(node, id);
        }
    }

    /// The caller does not want it any more, and it touches nothing.
    fn dropped(&mut self, node: usize, id: u64) {
        let is_it = |xfer: &Xfer| xfer.owner == node && xfer.id == id;
        if let Some(at) = self.xfers.iter().position(is_it) {
            let xfer = self.xfers.swap_remove(at);
            self.notes.end(xfer.note, None);
            if xfer.state.is_none() {
                self.stopped(&xfer, false);
            }
        }
    }

    pub(super) fn check_state(&mut self, input: &mut Input) {
        self.ask_or_release(input, false);
    }

    pub(super) fn release(&mut self, input: &mut Input) {
        self.ask_or_release(input, true);
    }

    fn ask_or_release(&mut self, input: &mut Input, release: bool) {
        let Some(node) = self.choose(input) else {
            return;
        };
        let mut faults = Faults::default();
        let own: Vec<u64> = self.nodes[node].ids.iter().copied().collect();
        let id = match input.below(16) {
            15 => input.u64(),
            at => own.iter().rev().nth(at).copied().unwrap_or(0),
        };
        let is_it = |xfer: &Xfer| xfer.owner == node && xfer.posted && xfer.id == id;
        faults.add_if(!self.xfers.iter().any(is_it), DT_ERR_NOT_FOUND);
        faults.add_if(self.nodes[node].closed, DT_ERR_CLOSED);
        let t = handle(input, &mut faults, self.nodes[node].handle);
        if release {
            // SAFETY: a handle or what is none.
            let status = unsafe { dt_release_xfer(t, id) };
            if faults.judge("dt_release_xfer", status, &[]) {
                self.dropped(node, id);
            }
            return;
        }
        let mut state = 77;
        let out = pointer(input, &mut faults, &raw mut state);
        // SAFETY: a handle or what is none, and room for the result.
        let status = unsafe { dt_check_xfer_state(t, id, out) };
        if !faults.judge("dt_check_xfer_state", status, &[]) {
            return assert_eq!(state, 77);
        }
        self.is_in_state(node, id, state);
    }

    /// A posted read is seen in a state, which is the last one if it has ended.
    fn is_in_state(&mut self, node: usize, id: u64, state: dt_status) {
        let is_it = |xfer: &Xfer| xfer.owner == node && xfer.id == id;
        let at = self
            .xfers
            .iter()
            .position(is_it)
            .expect("it is a posted read");
        if let Some(before) = self.xfers[at].state {
            return assert_eq!(state, before, "the outcome has changed");
        }
        if state == DT_XFER_PROC {
            return;
        }
        let mut xfer = self.xfers.swap_remove(at);
        self.ended(&xfer, state);
        self.notes.end(xfer.note, Some(state == DT_XFER_DONE));
        // It stays until it is released, but touches nothing any more.
        xfer.state = Some(state);
        xfer.from.clear();
        xfer.to.clear();
        self.xfers.push(xfer);
    }

    /// Looks at all posted reads of a node.
    pub(super) fn check_posted(&mut self, node: usize) {
        let running = |xfer: &&Xfer| xfer.owner == node && xfer.posted && xfer.state.is_none();
        let ids: Vec<u64> = self
            .xfers
            .iter()
            .filter(running)
            .map(|xfer| xfer.id)
            .collect();
        for id in ids {
            let mut state = 0;
            // SAFETY: a live handle, and room for the result.
            let status =
                unsafe { dt_check_xfer_state(self.nodes[node].handle, id, &raw mut state) };
            assert_eq!(status, DT_OK);
            self.is_in_state(node, id, state);
        }
    }
}

/// A C program passes any integer for an enum.
fn any_mode(value: i32) -> MaybeUninit<dt_cancel_mode> {
    let mut mode = MaybeUninit::<dt_cancel_mode>::uninit();
    // SAFETY: an enum of the size and the alignment of an i32; nobody says that it is a valid one.
    unsafe { mode.as_mut_ptr().cast::<i32>().write(value) };
    mode
}
