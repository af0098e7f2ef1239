//! The peer's agent metadata: NIXL's own blob, read and checked before NIXL sees a byte of it.
//!
//! NIXL trusts what it loads: some malformed blobs end the process, others leave the name that they
//! claim unusable. What passes here has exactly the form that an agent with one backend and host
//! memory exports. Two things cannot be checked from outside: whether the worker address leads
//! anywhere, and the bytes of remote keys, which only the peer's network stack understands.
//!
//! A blob is `nixlSerDes|`, then records `key | u64 length | bytes | '|'`, integers little-endian.

use super::coverage::Coverage;
use crate::backend::MAX_NAME;
use crate::error::{Error, Quoted, Result, Status, fail};
use crate::handshake::check_is_metadata;
use crate::layout::Layout;

const MAGIC: &[u8] = b"nixlSerDes|";

/// What stands for no registered memory at all.
const NO_MEMORY: &[u8] =
    b"\x0a\0\0\0\0\0\0\0MemSection|nixlSecElms\x08\0\0\0\0\0\0\0\0\0\0\0\0\0\0\0|";

/// A worker address lists the peer's network devices: hundreds of bytes, a few thousand at most.
const MAX_ADDRESS: usize = 1 << 16;

/// Address, length and device id in front of a region's remote key.
const REGION_HEADER: usize = 24;

/// UCX's number for no device.
const NOWHERE: u8 = 0xff;

/// Host memory, NIXL's `DRAM_SEG`.
const HOST_MEMORY: u32 = 0;

/// What a blob says, all of it checked.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Metadata<'a> {
    /// The name that the agent gave itself. Nothing proves it.
    pub agent: &'a str,
    /// Where the agent can be reached: differs between two incarnations of one name.
    pub address: &'a [u8],
    /// Everything after the agent's name.
    rest: &'a [u8],
    /// How much of it tells how to reach the agent.
    reach: usize,
    regions: Vec<(u64, u64)>,
}

impl<'a> Metadata<'a> {
    /// Reads the blob of an agent whose backend is `plugin`.
    pub fn parse(blob: &'a [u8], plugin: &str) -> Result<Metadata<'a>> {
        if blob.starts_with(b"DTLOCAL\0") {
            fail!(
                Incompatible,
                "the agent metadata is that of a LOCAL transport, but this transport is NIXL"
            );
        }
        check_is_metadata(blob)?;
        let Some(records) = blob.strip_prefix(MAGIC) else {
            fail!(
                InvalidArg,
                "agent metadata: {} bytes that do not start with \"nixlSerDes|\", so NIXL did not export them",
                blob.len()
            );
        };
        let mut records = Records {
            all: blob.len(),
            left: records,
        };
        let agent = records.take("Agent")?;
        if agent.is_empty() || agent.len() > MAX_NAME || agent.contains(&0) {
            fail!(
                InvalidArg,
                "agent metadata: the agent's name has {} bytes, but it can have 1 to {MAX_NAME}, none of them NUL",
                agent.len()
            );
        }
        let Ok(agent) = std::str::from_utf8(agent) else {
            fail!(InvalidArg, "agent metadata: the agent's name is not UTF-8");
        };
        let rest = records.left;

        let backends = records.take_u64("Conns")?;
        if backends != 1 {
            fail!(
                Incompatible,
                "agent metadata of {}: {backends} NIXL backends, but a peer needs exactly one, {plugin}",
                Quoted(agent)
            );
        }
        check_plugin(agent, records.take("t")?, plugin)?;
        let address = records.take("c")?;
        if address.is_empty() || address.len() > MAX_ADDRESS {
            fail!(
                InvalidArg,
                "agent metadata of {}: its address has {} bytes, but it can have 1 to {MAX_ADDRESS}",
                Quoted(agent),
                address.len()
            );
        }
        let reach = rest.len() - records.left.len();

        records.take_literal("", b"MemSection")?;
        let sections = records.take_u64("nixlSecElms")?;
        if sections != 1 {
            fail!(
                Incompatible,
                "agent metadata of {}: {sections} kinds of registered memory, but a peer needs exactly one, host memory",
                Quoted(agent)
            );
        }
        check_plugin(agent, records.take("bknd")?, plugin)?;
        records.take_literal("nixlDList", b"nixlSDList")?;
        let memory = u32::from_le_bytes(records.take_array("t")?);
        if memory != HOST_MEMORY {
            fail!(
                Incompatible,
                "agent metadata of {}: its registered memory is of NIXL's type {memory}, but only host memory ({HOST_MEMORY}) is served",
                Quoted(agent)
            );
        }
        let count = records.take_u64("n")?;
        // Each region takes far more than one byte: a count that lies is refused before it costs.
        if count == 0 || count > records.left.len() as u64 {
            fail!(
                InvalidArg,
                "agent metadata of {}: {count} registered regions in {} bytes",
                Quoted(agent),
                records.left.len()
            );
        }
        let mut regions = Vec::new();
        for _ in 0..count {
            regions.extend(region(agent, records.take("")?, plugin)?);
        }
        if !records.left.is_empty() {
            fail!(
                InvalidArg,
                "agent metadata of {}: {} bytes follow after its end",
                Quoted(agent),
                records.left.len()
            );
        }
        Ok(Metadata {
            agent,
            address,
            rest,
            reach,
            regions,
        })
    }

    /// What holds the blocks of `remote`: the peer registered each of them, in one piece.
    pub fn check_covers(&self, remote: &Layout) -> Result<Coverage> {
        Coverage::new(&self.regions, remote).map_err(|(block, address)| {
            let registered = self.regions.iter().take(3);
            let registered: Vec<_> = registered
                .map(|(start, end)| format!("{start:#x}..{end:#x}"))
                .collect();
            let message = format!(
                "agent {} did not register all of block {block}, {address:#x}..{:#x}; it has {} region(s) of host memory: {}",
                Quoted(self.agent),
                address + remote.block_len(),
                self.regions.len(),
                registered.join(", ")
            );
            Error::new(Status::Incompatible, message)
        })
    }

    /// The same blob under another name.
    pub fn renamed(&self, name: &str) -> Vec<u8> {
        named(name, &[self.rest])
    }

    /// The same without the registered memory, also under another name.
    pub fn without_memory(&self, name: &str) -> Vec<u8> {
        named(name, &[&self.rest[..self.reach], NO_MEMORY])
    }
}

fn named(name: &str, rest: &[&[u8]]) -> Vec<u8> {
    let len = (name.len() as u64).to_le_bytes();
    let head = [MAGIC, b"Agent", &len, name.as_bytes(), b"|"];
    [&head, rest].concat().concat()
}

fn check_plugin(agent: &str, found: &[u8], plugin: &str) -> Result<()> {
    if found != plugin.as_bytes() {
        fail!(
            Incompatible,
            "agent metadata of {}: its NIXL backend is {}, but the one here is {plugin:?}",
            Quoted(agent),
            shown(found)
        );
    }
    Ok(())
}

/// What stands where something else belongs, for a sentence: no more of it than is shown.
fn shown(found: &[u8]) -> String {
    let beginning = String::from_utf8_lossy(&found[..found.len().min(200)]);
    Quoted(&beginning).to_string()
}

/// Start and end of a registered region; `None` for one that no block can lie in.
fn region(agent: &str, bytes: &[u8], plugin: &str) -> Result<Option<(u64, u64)>> {
    let Some((header, rkey)) = bytes.split_at_checked(REGION_HEADER) else {
        fail!(
            InvalidArg,
            "agent metadata of {}: a region record of {} bytes, but it has at least {REGION_HEADER}",
            Quoted(agent),
            bytes.len()
        );
    };
    let word =
        |at: usize| u64::from_le_bytes(header[at..at + 8].try_into().expect("8 of 24 bytes"));
    let (start, len, device) = (word(0), word(8), word(16));
    let end = match start.checked_add(len) {
        Some(end) if start != 0 && len != 0 => end,
        _ => fail!(
            InvalidArg,
            "agent metadata of {}: a region of {len} bytes at {start:#x} has no place in 64-bit addresses",
            Quoted(agent)
        ),
    };
    if plugin == "UCX" {
        check_rkey(agent, rkey)?;
    }
    Ok((device == 0).then_some((start, end)))
}

/// UCX reads a remote key without knowing its length: a map of memory domains (u64) and the memory
/// type; then, unless the map is empty, a length-prefixed key for each domain and the device that the
/// memory is near to. Distances to other devices follow if that is not `NOWHERE`, three bytes each, up
/// to one that begins with `NOWHERE`.
fn check_rkey(agent: &str, rkey: &[u8]) -> Result<()> {
    let fits = || {
        let (map, rest) = rkey.split_first_chunk::<8>()?;
        let (memory, mut rest) = rest.split_first()?;
        if u32::from(*memory) != HOST_MEMORY {
            return None;
        }
        let map = u64::from_le_bytes(*map);
        for _ in 0..map.count_ones() {
            let (len, keys) = rest.split_first()?;
            rest = keys.get(usize::from(*len)..)?;
        }
        if map == 0 || *rest.first()? == NOWHERE {
            return Some(());
        }
        let mut distances = &rest[1..];
        while *distances.first()? != NOWHERE {
            distances = distances.get(3..)?;
        }
        Some(())
    };
    if fits().is_none() {
        fail!(
            InvalidArg,
            "agent metadata of {}: a remote key of {} bytes is malformed",
            Quoted(agent),
            rkey.len()
        );
    }
    Ok(())
}

struct Records<'a> {
    /// Bytes of the whole blob, to say where something is wrong.
    all: usize,
    left: &'a [u8],
}

impl<'a> Records<'a> {
    fn take(&mut self, key: &str) -> Result<&'a [u8]> {
        let at = self.all - self.left.len();
        let wrong = |what: &str| {
            Error::new(
                Status::InvalidArg,
                format!("agent metadata: {what} record {key:?} at byte {at}"),
            )
        };
        let left = self
            .left
            .strip_prefix(key.as_bytes())
            .ok_or_else(|| wrong("there is no"))?;
        let (len, left) = left
            .split_first_chunk::<8>()
            .ok_or_else(|| wrong("the blob ends in"))?;
        let (bytes, left) = usize::try_from(u64::from_le_bytes(*len))
            .ok()
            .and_then(|len| left.split_at_checked(len))
            .ok_or_else(|| wrong("the blob ends in"))?;
        self.left = left
            .strip_prefix(b"|")
            .ok_or_else(|| wrong("no '|' ends"))?;
        Ok(bytes)
    }

    fn take_array<const N: usize>(&mut self, key: &str) -> Result<[u8; N]> {
        let bytes = self.take(key)?;
        bytes.try_into().map_err(|_| {
            Error::new(
                Status::InvalidArg,
                format!(
                    "agent metadata: record {key:?} has {} bytes, but it has {N}",
                    bytes.len()
                ),
            )
        })
    }

    fn take_u64(&mut self, key: &str) -> Result<u64> {
        Ok(u64::from_le_bytes(self.take_array(key)?))
    }

    fn take_literal(&mut self, key: &str, expected: &[u8]) -> Result<()> {
        let found = self.take(key)?;
        if found != expected {
            fail!(
                InvalidArg,
                "agent metadata: record {key:?} holds {} in place of {}",
                shown(found),
                shown(expected)
            );
        }
        Ok(())
    }
}

#[cfg(any(test, fuzzing))]
pub(super) mod fuzz;
#[cfg(test)]
mod tests;
