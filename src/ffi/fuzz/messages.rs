//! Messages: each one comes once, and those that were sent come.

use std::ffi::CStr;
use std::mem::MaybeUninit;
use std::ptr;

use super::world::World;
use super::wrong::{Faults, SENTINEL, array, handle, last_error, pointer};
use crate::backend::MAX_MESSAGE;
use crate::ffi::messages::*;
use crate::ffi::status::*;
use crate::fuzz::Input;

/// What a mailbox holds of one sender, less its name and the longest message.
const ROOM: usize = (1 << 20) - (70 << 10);

/// All messages that can still come.
#[derive(Default)]
pub(super) struct Notes {
    last: u64,
    waiting: Vec<Note>,
}

struct Note {
    id: u64,
    from: usize,
    to: usize,
    bytes: Vec<u8>,
    state: State,
}

#[derive(Clone, Copy, PartialEq)]
enum State {
    /// Sent alone: in the order of these.
    Sent,
    /// The read that it goes with is done.
    Due,
    /// That read is in flight, or was given up.
    Perhaps,
}

impl Notes {
    fn add(&mut self, from: usize, to: usize, bytes: &[u8], state: State) -> u64 {
        self.last += 1;
        self.waiting.push(Note {
            id: self.last,
            from,
            to,
            bytes: bytes.to_vec(),
            state,
        });
        self.last
    }

    /// The message of a read.
    pub(super) fn perhaps(&mut self, from: usize, to: usize, bytes: &[u8]) -> u64 {
        self.add(from, to, bytes, State::Perhaps)
    }

    /// A read has ended: done, failed, or by being given up, when the message may have gone.
    pub(super) fn end(&mut self, note: Option<u64>, done: Option<bool>) {
        let at = self
            .waiting
            .iter()
            .position(|waiting| Some(waiting.id) == note);
        match (at, done) {
            (Some(at), Some(true)) => self.waiting[at].state = State::Due,
            (Some(at), Some(false)) => drop(self.waiting.remove(at)),
            _ => {}
        }
    }

    pub(super) fn receiver_is_gone(&mut self, node: usize) {
        self.waiting.retain(|note| note.to != node);
    }

    fn arrived(&mut self, from: usize, to: usize, bytes: &[u8]) {
        let is_it = |note: &Note| note.from == from && note.to == to && note.bytes == bytes;
        let at = self.waiting.iter().position(is_it);
        let at = at.expect("a message that nobody sent, or that came before");
        let note = self.waiting.remove(at);
        if note.state == State::Sent {
            let mut before = self.waiting[..at].iter();
            let earlier =
                |other: &Note| other.state == State::Sent && other.from == from && other.to == to;
            assert!(!before.any(earlier), "a message has overtaken another one");
        }
    }

    /// Whether a sender may find no room.
    fn may_be_full(&self, from: usize, to: usize) -> bool {
        let pair = |note: &&Note| note.from == from && note.to == to;
        let all = self.waiting.iter().filter(pair);
        all.clone().any(|note| note.state == State::Perhaps)
            || all.map(|note| note.bytes.len() + 4).sum::<usize>() > ROOM
    }

    fn check_none_is_lost(&self, to: usize) {
        let mut own = self.waiting.iter().filter(|note| note.to == to);
        assert!(
            own.all(|note| note.state == State::Perhaps),
            "a message was lost"
        );
    }
}

impl World {
    /// A message like no other one.
    pub(super) fn message(
        &mut self,
        input: &mut Input,
        faults: &mut Faults,
        may_be_empty: bool,
    ) -> Vec<u8> {
        let len = match input.below(16) {
            0 | 1 => 0,
            2 => MAX_MESSAGE,
            3 => MAX_MESSAGE + 1,
            4..8 => 8 + usize::from(input.u16()) % (MAX_MESSAGE - 8),
            _ => 8 + input.below(64),
        };
        faults.add_if(
            len > MAX_MESSAGE || len == 0 && !may_be_empty,
            DT_ERR_INVALID_ARG,
        );
        self.pattern += 1;
        let mut bytes = self.pattern.to_le_bytes().repeat(len.div_ceil(8));
        bytes.truncate(len);
        bytes
    }

    pub(super) fn send(&mut self, input: &mut Input) {
        let mut faults = Faults::default();
        let Some((node, id, name)) = self.choose_with_name(input, &mut faults) else {
            return;
        };
        let peer = name
            .as_ref()
            .and_then(|name| self.nodes[node].peers.get(name));
        let target = peer.map_or(0, |peer| peer.node);
        faults.add_if(peer.is_none(), DT_ERR_NOT_FOUND);
        faults.add_if(self.nodes[node].closed, DT_ERR_CLOSED);
        let mut perhaps = self.may_be_lost(node, name.as_ref()).to_vec();
        let mut message = self.message(input, &mut faults, false);
        if self.notes.may_be_full(node, target) {
            perhaps.push(DT_ERR_BUSY);
        }
        let t = handle(input, &mut faults, self.nodes[node].handle);
        let bytes = array(input, &mut faults, message.as_mut_ptr(), message.len());
        // SAFETY: a handle or what is none, a string, and the bytes of a vector.
        let status = unsafe { dt_send_notif(t, id.as_ptr(), bytes.cast(), message.len()) };
        if faults.judge("dt_send_notif", status, &perhaps) && !self.nodes[target].closed {
            self.notes.add(node, target, &message, State::Sent);
        }
    }

    pub(super) fn receive(&mut self, input: &mut Input) {
        let Some(node) = self.choose(input) else {
            return;
        };
        let mut faults = Faults::default();
        faults.add_if(self.nodes[node].closed, DT_ERR_CLOSED);
        let mut buf = [const { MaybeUninit::<dt_notif>::uninit() }; 8];
        let cap = input.below(9);
        let room = [0, 16, 100, MAX_MESSAGE + 8, 1 << 18][input.below(5)];
        let mut arena = vec![0u8; room];
        let t = handle(input, &mut faults, self.nodes[node].handle);
        let into = array(input, &mut faults, buf.as_mut_ptr().cast(), cap);
        let bytes = array(input, &mut faults, arena.as_mut_ptr(), room);
        let (mut count, mut used) = (SENTINEL as usize, SENTINEL as usize);
        let count_at = pointer(input, &mut faults, &raw mut count);
        let used_at = pointer(input, &mut faults, &raw mut used);
        // SAFETY: a handle or what is none, and room for all results.
        let status =
            unsafe { dt_get_new_notifs(t, into, cap, bytes.cast(), room, count_at, used_at) };
        if !faults.judge("dt_get_new_notifs", status, &[DT_ERR_BUFFER_TOO_SMALL]) {
            assert_eq!(count, SENTINEL as usize);
            match status == DT_ERR_BUFFER_TOO_SMALL {
                true => assert!(used > room && used < 2 * MAX_MESSAGE),
                false => assert_eq!(used, SENTINEL as usize),
            }
            return;
        }
        assert!(count <= cap && used <= room);
        self.received(node, &buf[..count], &arena[..used]);
    }

    fn received(&mut self, node: usize, notifs: &[MaybeUninit<dt_notif>], arena: &[u8]) {
        let mut at = arena.as_ptr();
        for notif in notifs {
            // SAFETY: the call says that it has written it.
            let notif = unsafe { notif.assume_init_ref() };
            assert_eq!(notif.agent_name.cast(), at);
            // SAFETY: a string in the arena.
            let name = unsafe { CStr::from_ptr(notif.agent_name) };
            at = at.wrapping_add(name.to_bytes_with_nul().len());
            assert_eq!(notif.msg.cast(), at);
            at = at.wrapping_add(notif.msg_len);
            assert!(at <= arena.as_ptr_range().end);
            // SAFETY: as was just checked, these bytes are in the arena.
            let bytes = unsafe { std::slice::from_raw_parts(notif.msg.cast(), notif.msg_len) };
            let name = name.to_str().expect("names are UTF-8");
            let from = self.nodes.iter().position(|node| node.name == name);
            self.notes
                .arrived(from.expect("a sender's name"), node, bytes);
        }
        assert_eq!(at, arena.as_ptr_range().end);
    }

    /// All that is there.
    pub(super) fn receive_all(&mut self, node: usize) {
        if self.nodes[node].closed {
            return;
        }
        let mut arena = vec![0u8; 1 << 18];
        loop {
            let mut buf = [const { MaybeUninit::<dt_notif>::uninit() }; 8];
            let (mut count, mut used) = (0, 0);
            let handle = self.nodes[node].handle;
            // SAFETY: a live handle, and room for all results.
            let status = unsafe {
                let (into, bytes) = (buf.as_mut_ptr().cast(), arena.as_mut_ptr().cast());
                let (count, used) = (ptr::from_mut(&mut count), ptr::from_mut(&mut used));
                dt_get_new_notifs(handle, into, 8, bytes, arena.len(), count, used)
            };
            assert_eq!(status, DT_OK, "{}", last_error());
            if count == 0 {
                break;
            }
            self.received(node, &buf[..count], &arena[..used]);
        }
        self.notes.check_none_is_lost(node);
    }
}
