//! Peers: added in every way, with what they said of themselves and with what they never said.

use sha2::{Digest, Sha256};

use super::world::{Peer, World};
use super::wrong::{Faults, SENTINEL, array, handle, pointer};
use crate::descriptor;
use crate::ffi::handshake::dt_import_handshake;
use crate::ffi::peers::*;
use crate::ffi::pull::dt_add_remote_agent;
use crate::ffi::status::*;
use crate::fuzz::Input;

/// What a blob that a stranger made up may be refused with.
const STRANGE: [i32; 2] = [DT_ERR_INVALID_ARG, DT_ERR_INCOMPATIBLE];

impl World {
    pub(super) fn add_peer(&mut self, input: &mut Input) {
        let mut faults = Faults::default();
        let Some((node, id, name)) = self.choose_with_name(input, &mut faults) else {
            return;
        };
        let target = input.below(8) % self.nodes.len();
        let peer = &self.nodes[target];
        let (mut base, mut blocks) = (peer.base(), peer.blocks);
        let mut first = 0;
        match input.below(10) {
            0 => {
                first = input.below(peer.blocks);
                base += (first * peer.block_len) as u64;
                blocks -= first;
            }
            1 => {
                blocks += 1 + input.below(3);
                faults.add(DT_ERR_INCOMPATIBLE);
            }
            2 => {
                (base, blocks) = [(0, 1), (1, 0), (u64::MAX, 2), (1, usize::MAX)][input.below(4)];
                faults.add(DT_ERR_INVALID_ARG);
                faults.add(DT_ERR_INCOMPATIBLE);
            }
            3 => {
                base = base.wrapping_add(input.u64());
                faults.add_if(base != peer.base(), DT_ERR_INVALID_ARG);
                faults.add_if(base != peer.base(), DT_ERR_INCOMPATIBLE);
            }
            _ => {}
        }
        let mut block_len = self.nodes[node].block_len;
        if input.one_in(12) {
            block_len = usize::from(input.u16());
        }
        faults.add_if(block_len == 0, DT_ERR_INVALID_ARG);
        let own = self.nodes[node].block_len;
        let lens_differ = block_len != own || block_len != peer.block_len;
        faults.add_if(lens_differ, DT_ERR_INCOMPATIBLE);
        // Of other lengths, so many blocks may have no addresses.
        faults.add_if(lens_differ, DT_ERR_INVALID_ARG);
        let mut metadata = peer.metadata.clone();
        strange_metadata(input, &mut faults, &mut metadata);
        let gone = peer.closed;
        faults.add_if(gone, DT_ERR_PEER_LOST);
        faults.add_if(self.nodes[node].closed, DT_ERR_CLOSED);
        let t = handle(input, &mut faults, self.nodes[node].handle);
        let data = array(input, &mut faults, metadata.as_mut_ptr(), metadata.len());
        // SAFETY: a handle or what is none, a string, and the bytes of a vector.
        let status = unsafe {
            let data = data.cast();
            dt_add_remote_peer(
                t,
                id.as_ptr(),
                data,
                metadata.len(),
                base,
                blocks,
                block_len,
            )
        };
        if faults.judge("dt_add_remote_peer", status, &[]) {
            let blocks = (first..first + blocks).collect();
            self.added(node, name.expect("it was taken"), target, blocks);
        }
    }

    pub(super) fn add_agent(&mut self, input: &mut Input) {
        let Some(node) = self.choose(input) else {
            return;
        };
        let mut faults = Faults::default();
        let target = input.below(8) % self.nodes.len();
        let peer = &self.nodes[target];
        let mut blocks: Vec<usize> = (0..peer.blocks).collect();
        let mut list = peer.descriptor.clone();
        match input.below(6) {
            0 => {
                // Another program's list: some blocks, in any order.
                let count = 1 + input.below(6);
                blocks = (0..count).map(|_| input.below(peer.blocks)).collect();
                list = described(peer.base(), peer.block_len, &blocks);
            }
            1 => {
                blocks = vec![peer.blocks + input.below(2)];
                list = described(peer.base(), peer.block_len, &blocks);
                faults.add(DT_ERR_INCOMPATIBLE);
            }
            2 => {
                strange(input, &mut faults, &mut list);
                if descriptor::parse(&list, peer.block_len as u64).is_ok() {
                    // It has no checksum, and still says something: of which blocks, the model has no
                    // word for.
                    return;
                }
            }
            _ => {}
        }
        let lens_differ = peer.block_len != self.nodes[node].block_len;
        faults.add_if(lens_differ, DT_ERR_INCOMPATIBLE);
        let mut metadata = peer.metadata.clone();
        strange_metadata(input, &mut faults, &mut metadata);
        faults.add_if(peer.closed, DT_ERR_PEER_LOST);
        faults.add_if(self.nodes[node].closed, DT_ERR_CLOSED);
        let name = peer.name.clone();
        let cap = [64, 0, name.len(), name.len() + 1][input.below(4)];
        faults.add_if(cap <= name.len(), DT_ERR_BUFFER_TOO_SMALL);
        let mut room = [0x55u8; 64];
        let mut len = SENTINEL as usize;
        let t = handle(input, &mut faults, self.nodes[node].handle);
        let data = array(input, &mut faults, metadata.as_mut_ptr(), metadata.len());
        let list_at = array(input, &mut faults, list.as_mut_ptr(), list.len());
        let out = array(input, &mut faults, room.as_mut_ptr(), cap);
        let len_out = pointer(input, &mut faults, &raw mut len);
        // SAFETY: a handle or what is none, the bytes of vectors, and room for the results.
        let status = unsafe {
            let (list_at, data) = (list_at.cast(), data.cast());
            let out = out.cast();
            dt_add_remote_agent(
                t,
                data,
                metadata.len(),
                list_at,
                list.len(),
                out,
                cap,
                len_out,
            )
        };
        if faults.judge("dt_add_remote_agent", status, &[]) {
            assert_eq!(len, name.len() + 1);
            assert_eq!(&room[..len], [name.as_bytes(), b"\0"].concat());
            return self.added(node, name, target, blocks);
        }
        assert_eq!(room, [0x55; 64]);
        match status == DT_ERR_BUFFER_TOO_SMALL {
            true => assert!(len > cap),
            false => assert_eq!(len, SENTINEL as usize),
        }
    }

    pub(super) fn import_handshake(&mut self, input: &mut Input) {
        let mut faults = Faults::default();
        let Some((node, id, name)) = self.choose_with_name(input, &mut faults) else {
            return;
        };
        let target = input.below(8) % self.nodes.len();
        let (own, peer) = (&self.nodes[node], &self.nodes[target]);
        let mut blob = peer.handshake.clone();
        if input.one_in(4) {
            strange(input, &mut faults, &mut blob);
        }
        let lens_differ = own.block_len != peer.block_len;
        faults.add_if(lens_differ, DT_ERR_INCOMPATIBLE);
        faults.add_if(peer.closed, DT_ERR_PEER_LOST);
        faults.add_if(own.closed, DT_ERR_CLOSED);
        let t = handle(input, &mut faults, own.handle);
        let data = array(input, &mut faults, blob.as_mut_ptr(), blob.len());
        // SAFETY: a handle or what is none, a string, and the bytes of a vector.
        let status = unsafe { dt_import_handshake(t, id.as_ptr(), data.cast(), blob.len()) };
        if faults.judge("dt_import_handshake", status, &[]) {
            let blocks = (0..self.nodes[target].blocks).collect();
            self.added(node, name.expect("it was taken"), target, blocks);
        }
    }

    fn added(&mut self, node: usize, name: String, target: usize, blocks: Vec<usize>) {
        self.orphan(node, &name);
        let peer = Peer {
            node: target,
            blocks,
        };
        self.nodes[node].peers.insert(name, peer);
    }

    /// The transfers of a registration have stopped.
    fn orphan(&mut self, node: usize, name: &str) {
        let own = |xfer: &&mut super::world::Xfer| xfer.owner == node && xfer.peer == name;
        for xfer in self.xfers.iter_mut().filter(own) {
            xfer.orphaned = true;
        }
    }

    pub(super) fn remove_peer(&mut self, input: &mut Input) {
        let mut faults = Faults::default();
        let Some((node, id, name)) = self.choose_with_name(input, &mut faults) else {
            return;
        };
        let known = |name| self.nodes[node].peers.contains_key(name);
        let unknown = name.as_ref().is_some_and(|name| !known(name));
        faults.add_if(unknown, DT_ERR_NOT_FOUND);
        faults.add_if(self.nodes[node].closed, DT_ERR_CLOSED);
        let t = handle(input, &mut faults, self.nodes[node].handle);
        // SAFETY: a handle or what is none, and a string.
        let status = unsafe { dt_remove_remote_peer(t, id.as_ptr()) };
        if faults.judge("dt_remove_remote_peer", status, &[]) {
            let name = name.expect("it was taken");
            self.orphan(node, &name);
            self.nodes[node].peers.remove(&name);
        }
    }

    pub(super) fn peer_status(&mut self, input: &mut Input) {
        let mut faults = Faults::default();
        let Some((node, id, name)) = self.choose_with_name(input, &mut faults) else {
            return;
        };
        let peer = name.and_then(|name| self.nodes[node].peers.get(&name));
        faults.add_if(peer.is_none(), DT_ERR_NOT_FOUND);
        faults.add_if(self.nodes[node].closed, DT_ERR_CLOSED);
        let gone = peer.is_some_and(|peer| self.is_gone(peer));
        let t = handle(input, &mut faults, self.nodes[node].handle);
        // SAFETY: a handle or what is none, and a string.
        let status = unsafe { dt_peer_status(t, id.as_ptr()) };
        let perhaps: &[_] = if gone { &[DT_ERR_PEER_LOST] } else { &[] };
        faults.judge("dt_peer_status", status, perhaps);
    }
}

/// Sometimes it is not what the peer gave out.
fn strange_metadata(input: &mut Input, faults: &mut Faults, metadata: &mut Vec<u8>) {
    match input.below(12) {
        0 => strange(input, faults, metadata),
        1 => {
            // As a program that means harm makes it: whole, but not what the peer said.
            let (header, sum) = (16, metadata.len() - 8);
            let digits = (header..sum).filter(|at| metadata[*at].is_ascii_digit());
            let digits: Vec<usize> = digits.collect();
            let at = digits[usize::from(input.u16()) % digits.len()];
            let digit = b'1' + input.byte() % 9;
            if digit == metadata[at] {
                return;
            }
            metadata[at] = digit;
            let digest = Sha256::digest(&metadata[..sum]);
            metadata[sum..].copy_from_slice(&digest[..8]);
            for status in STRANGE.into_iter().chain([
                DT_ERR_PEER_LOST,
                DT_ERR_UNAVAILABLE,
                DT_ERR_BACKEND,
                // A longer name may not fit any more.
                DT_ERR_BUFFER_TOO_SMALL,
            ]) {
                faults.add(status);
            }
        }
        _ => {}
    }
}

/// Bends a blob.
fn strange(input: &mut Input, faults: &mut Faults, blob: &mut Vec<u8>) {
    let before = blob.clone();
    let at = usize::from(input.u16()) % blob.len();
    match input.below(4) {
        0 => blob.truncate(at),
        1 => blob[at] ^= 1 << input.below(8),
        2 => blob.insert(at, input.byte()),
        _ => *blob = input.take(64).to_vec(),
    }
    if *blob != before {
        STRANGE.into_iter().for_each(|status| faults.add(status));
    }
}

/// A list of blocks as another program may write it: every number in its longest form.
fn described(base: u64, block_len: usize, blocks: &[usize]) -> Vec<u8> {
    let mut list = vec![0xdc, 0, blocks.len() as u8];
    for block in blocks {
        list.push(0x93);
        for number in [base + (block * block_len) as u64, block_len as u64, 0] {
            list.push(0xcf);
            list.extend(number.to_be_bytes());
        }
    }
    list
}
