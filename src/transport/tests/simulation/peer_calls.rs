//! Calls about peers, with what a program chooses for them.

use super::backend::metadata_of;
use super::marks::Mark;
use super::model::{Addition, ensure, nothing_more};
use super::program::NODES;
use super::run::{NAMES, Run};
use super::world::{Fact, Verdict};
use crate::error::Status;

impl Run {
    pub(super) fn add_peer(&mut self, at: usize) -> Verdict {
        let target = self.some_agent();
        let (base, all, block_len) = self.region_of(target);
        let first = self.numbers.usize(..all);
        let first = if self.numbers.bool() { 0 } else { first };
        let mut count = self.numbers.usize(1..=all - first);
        if self.one_in(16) {
            // More than there are.
            count = all - first + 1;
        }
        let name = self.one_of(&NAMES[..4]);
        let fits = block_len == self.model(at).block_len;
        let offsets = (first..first + count).map(|block| block * block_len);
        let addition = Addition {
            name,
            target,
            blocks: offsets.collect(),
        };
        self.note(|| format!("    {name}: agent {target}, {count} blocks from {first} on"));
        let base = base + (first * block_len) as u64;
        let metadata = metadata_of(target);
        let got = self.call(at, |transport| {
            transport.add_peer(name, &metadata, base, count as u64, block_len as u64)
        })?;
        self.added(at, addition, got, (!fits).then_some(Status::Incompatible))
    }

    fn added(
        &mut self,
        at: usize,
        addition: Addition,
        got: Result<Result<(), Status>, ()>,
        refusal: Option<Status>,
    ) -> Verdict {
        let Ok(got) = got else {
            return Ok(());
        };
        let facts = self.facts();
        let world = &mut *self.world.lock();
        if let Some(status) = refusal {
            world.mark(Mark::Refused);
            ensure!(got == Err(status), "{got:?} instead of {status:?}");
            return nothing_more(&facts);
        }
        self.nodes[at].model.added(addition, got, facts, world)
    }

    pub(super) fn add_agent(&mut self, at: usize) -> Verdict {
        let target = self.some_agent();
        let (base, all, block_len) = self.region_of(target);
        // In any order, some more than once, and some that begin in the middle of others.
        let count = self.numbers.usize(1..=all + 2);
        let uneven = self.one_in(4);
        let blocks: Vec<usize> = (0..count)
            .map(|_| match uneven {
                true => self.numbers.usize(..=(all - 1) * block_len),
                false => self.numbers.usize(..all) * block_len,
            })
            .collect();
        let list: Vec<u64> = blocks.iter().map(|offset| base + *offset as u64).collect();
        let descriptor = descriptor(&list, block_len);
        let fits = block_len == self.model(at).block_len;
        let metadata = metadata_of(target);
        let Ok(named) = self.call(at, |transport| transport.name_in(&metadata))? else {
            return Ok(());
        };
        let facts = self.facts();
        if let Err(status) = named {
            ensure!(
                facts == [Fact::NameRefused(status)],
                "the name is refused: {status:?}, {facts:?}"
            );
            return Ok(());
        }
        nothing_more(&facts)?;
        let name = *NAMES
            .iter()
            .find(|name| self.world.lock().agents[target].name.as_ref() == **name)
            .expect("agents have these names");
        ensure!(named.as_deref() == Ok(name), "it is called {named:?}");
        self.note(|| format!("    {name}: agent {target}, blocks {blocks:?}"));
        let addition = Addition {
            name,
            target,
            blocks,
        };
        let got = self.call(at, |transport| {
            transport.add_agent(name, &metadata, &descriptor)
        })?;
        self.added(at, addition, got, (!fits).then_some(Status::Incompatible))
    }

    pub(super) fn import_handshake(&mut self, at: usize) -> Verdict {
        let from = self.numbers.usize(..NODES);
        if self.nodes[from].model.refuses_all().is_some() {
            return Ok(());
        }
        let exported = self.transport(from).export_handshake();
        let mut blob = exported.map_err(|error| format!("no handshake: {error}"))?;
        let damaged = self.one_in(5);
        if damaged {
            let byte = self.numbers.usize(..blob.len());
            blob[byte] ^= self.numbers.u8(1..);
        }
        let name = self.one_of(&NAMES[..4]);
        let (mine, theirs) = (&self.nodes[at], &self.nodes[from]);
        let (agent, blocks, block_len) = (
            theirs.model.agent,
            theirs.model.blocks,
            theirs.model.block_len,
        );
        let differ = mine.fingerprint != theirs.fingerprint
            && !mine.fingerprint.is_empty()
            && !theirs.fingerprint.is_empty();
        let refusal = match damaged {
            true => Some(Status::InvalidArg),
            false => (differ || block_len != mine.model.block_len).then_some(Status::Incompatible),
        };
        let addition = Addition {
            name,
            target: agent,
            blocks: (0..blocks).map(|block| block * block_len).collect(),
        };
        self.note(|| format!("    {name}: agent {agent}"));
        let got = self.call(at, |transport| transport.import_handshake(name, &blob))?;
        self.added(at, addition, got, refusal)
    }

    /// Arguments that no backend gets to see.
    pub(super) fn add_wrong(&mut self, at: usize) -> Verdict {
        let target = self.some_agent();
        let metadata = metadata_of(target);
        let block_len = self.model(at).block_len as u64;
        let name = self.one_of(&NAMES);
        let kind = self.numbers.u8(..7);
        let (base, count, len, refusal) = match kind {
            0 => (1 << 20, 4, block_len + 1, Status::Incompatible),
            1 => (0, 4, block_len, Status::InvalidArg),
            2 => (1 << 20, 0, block_len, Status::InvalidArg),
            3 => (u64::MAX - 5, 9, block_len, Status::InvalidArg),
            _ => (0, 0, 0, Status::InvalidArg),
        };
        let mut list = descriptor(&[1 << 20, 2 << 20, 1 << 20], block_len as usize);
        let mut refusal = refusal;
        match kind {
            4 => list.truncate(list.len() - 1 - self.numbers.usize(..10)),
            5 => list = descriptor(&[0], block_len as usize),
            _ => {
                list = descriptor(&[1 << 20], block_len as usize + 1);
                refusal = if kind == 6 {
                    Status::Incompatible
                } else {
                    refusal
                };
            }
        }
        let got = self.call(at, |transport| match kind {
            0..4 => transport.add_peer(name, &metadata, base, count, len),
            _ => transport.add_agent(name, &metadata, &list),
        })?;
        let addition = Addition {
            name,
            target,
            blocks: Vec::new(),
        };
        self.added(at, addition, got, Some(refusal))
    }

    pub(super) fn remove_peer(&mut self, at: usize) -> Verdict {
        let name = self.some_peer(at);
        let Ok(got) = self.call(at, |transport| transport.remove_peer(name))? else {
            return Ok(());
        };
        let facts = self.facts();
        let world = &mut *self.world.lock();
        let model = &mut self.nodes[at].model;
        if model.peer(name).is_none() {
            world.mark(Mark::Refused);
            ensure!(got == Err(Status::NotFound), "{got:?} of an unknown peer");
            return nothing_more(&facts);
        }
        ensure!(got == Ok(()), "{got:?} of a known peer");
        model.remove(name, facts, world)
    }

    pub(super) fn peer_status(&mut self, at: usize) -> Verdict {
        let name = self.some_peer(at);
        let Ok(got) = self.call(at, |transport| transport.peer_status(name))? else {
            return Ok(());
        };
        let expected = match self.model(at).peer(name) {
            None => Err(Status::NotFound),
            Some(peer) => peer.fault.map_or(Ok(()), Err),
        };
        if expected.is_err_and(|status| status != Status::NotFound) {
            self.world.lock().mark(Mark::PeerFaulted);
        }
        ensure!(got == expected, "{name} is {got:?}, not {expected:?}");
        Ok(())
    }
}

/// MessagePack for a list of blocks, in no short form.
fn descriptor(addresses: &[u64], block_len: usize) -> Vec<u8> {
    let mut bytes = vec![0xdd];
    bytes.extend((addresses.len() as u32).to_be_bytes());
    for address in addresses {
        bytes.extend([0x93, 0xcf]);
        bytes.extend(address.to_be_bytes());
        bytes.push(block_len as u8);
        bytes.push(0);
    }
    bytes
}
