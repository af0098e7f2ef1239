//! The handshake blob: all that a node must know of another one to add it as a peer, in one piece.
//!
//! Integers are unsigned and little-endian; nothing is padded or aligned. A blob of any version is a
//! frame:
//!
//! | bytes | content                               |
//! |-------|---------------------------------------|
//! | 8     | `DTHELLO\0`                           |
//! | 4     | format version                        |
//! | 8     | length of the body, *n*               |
//! | *n*   | body                                  |
//! | 32    | SHA-256 of all bytes before           |
//!
//! So a reader can tell a newer blob from a damaged one. The body of version 1, to its last byte:
//!
//! | bytes | content                                                          |
//! |-------|------------------------------------------------------------------|
//! | 4     | backend: 1 LOCAL, 2 NIXL                                         |
//! | 8     | address of the first block                                       |
//! | 8     | number of blocks                                                 |
//! | 8     | bytes per block                                                  |
//! | 1     | length of the fingerprint, *f*: 0 (none) or 16                   |
//! | *f*   | fingerprint: lower-case hex digits                               |
//! | 8     | length of the agent metadata, *m*                                |
//! | *m*   | agent metadata, which the backend alone can read                 |
//!
//! Whatever is changed, even by one field more, is a new version. The digest finds accidents, not
//! forgery: what the blob says are claims, and whoever connects checks them.

use sha2::{Digest, Sha256};

use crate::backend::Kind;
use crate::error::{Error, Result, Status, fail};
use crate::fingerprint;
use crate::region::Region;

const MAGIC: &[u8; 8] = b"DTHELLO\0";
const VERSION: u32 = 1;
const HEADER: usize = MAGIC.len() + 4 + 8;
const DIGEST: usize = 32;
/// Digits of a fingerprint.
const FINGERPRINT: usize = 16;

/// What a node says of itself.
#[derive(Clone, PartialEq, Eq, Debug)]
pub struct Facts {
    /// Which backend serves it.
    pub backend: Kind,
    /// Of its configuration; "" when it makes no statement.
    pub fingerprint: String,
    /// Its blocks.
    pub region: Region,
    /// What its backend tells those of its peers.
    pub metadata: Vec<u8>,
}

/// The blob for peers.
pub fn export(facts: &Facts) -> Vec<u8> {
    let mut body = Vec::new();
    body.extend_from_slice(&number_of(facts.backend).to_le_bytes());
    body.extend_from_slice(&facts.region.base().to_le_bytes());
    body.extend_from_slice(&facts.region.num_blocks().to_le_bytes());
    body.extend_from_slice(&facts.region.block_len().to_le_bytes());
    body.push(facts.fingerprint.len() as u8);
    body.extend_from_slice(facts.fingerprint.as_bytes());
    body.extend_from_slice(&(facts.metadata.len() as u64).to_le_bytes());
    body.extend_from_slice(&facts.metadata);
    frame(VERSION, &body)
}

fn frame(version: u32, body: &[u8]) -> Vec<u8> {
    let mut blob = Vec::with_capacity(HEADER + body.len() + DIGEST);
    blob.extend_from_slice(MAGIC);
    blob.extend_from_slice(&version.to_le_bytes());
    blob.extend_from_slice(&(body.len() as u64).to_le_bytes());
    blob.extend_from_slice(body);
    let digest = Sha256::digest(&blob);
    blob.extend_from_slice(&digest);
    blob
}

/// Refuses a handshake blob where the metadata in it is meant.
pub fn check_is_metadata(blob: &[u8]) -> Result<()> {
    if blob.starts_with(MAGIC) {
        fail!(
            InvalidArg,
            "this is a handshake blob, not agent metadata: dt_import_handshake takes it"
        );
    }
    Ok(())
}

/// Takes apart what claims to be a blob. What it says is possible then, not true.
pub fn parse(blob: &[u8]) -> Result<Facts> {
    let mut fields = Fields(body(blob)?);
    let backend = fields.u32("backend")?;
    let Some(backend) = kind_of(backend) else {
        fail!(
            InvalidArg,
            "the handshake blob says backend {backend}, but there are only 1 (LOCAL) and 2 (NIXL)"
        );
    };
    let (base, num_blocks, block_len) = (
        fields.u64("base address")?,
        fields.u64("number of blocks")?,
        fields.u64("block length")?,
    );
    let region = Region::new(base, num_blocks, block_len)
        .map_err(|error| error.context("the handshake blob"))?;
    let digits = fields.bytes("fingerprint", 1)?[0].into();
    let fingerprint = fields.bytes("fingerprint", digits)?;
    let is_digit = |byte: &u8| matches!(byte, b'0'..=b'9' | b'a'..=b'f');
    if ![0, FINGERPRINT].contains(&fingerprint.len()) || !fingerprint.iter().all(is_digit) {
        fail!(
            InvalidArg,
            "the handshake blob has a fingerprint of {digits} bytes, \"{}\", but one is {FINGERPRINT} lower-case hex \
             digits, or nothing",
            fingerprint[..fingerprint.len().min(FINGERPRINT)].escape_ascii()
        );
    }
    let fingerprint = fingerprint.iter().copied().map(char::from).collect();
    let metadata = fields.u64("agent metadata")?;
    let metadata = fields.bytes("agent metadata", metadata)?.to_vec();
    if !fields.0.is_empty() {
        fail!(
            InvalidArg,
            "the handshake blob has {} bytes behind its last field",
            fields.0.len()
        );
    }
    Ok(Facts {
        backend,
        fingerprint,
        region,
        metadata,
    })
}

/// The body of a blob that is whole, and of this version.
fn body(blob: &[u8]) -> Result<&[u8]> {
    if blob.is_empty() {
        fail!(InvalidArg, "the handshake blob is empty");
    }
    let magic = &blob[..blob.len().min(MAGIC.len())];
    if !MAGIC.starts_with(magic) {
        fail!(
            InvalidArg,
            "this is no handshake blob: it begins with \"{}\", not with \"{}\"",
            magic.escape_ascii(),
            MAGIC.escape_ascii()
        );
    }
    let mut header = Fields(&blob[magic.len()..]);
    let (version, len) = (header.u32("version")?, header.u64("length")?);
    let all = (HEADER as u64)
        .checked_add(len)
        .and_then(|all| all.checked_add(DIGEST as u64));
    if all != Some(blob.len() as u64) {
        fail!(
            InvalidArg,
            "the handshake blob has {} bytes, but its header speaks of {HEADER} + {len} + {DIGEST}: it was cut, or changed",
            blob.len()
        );
    }
    let (whole, digest) = blob.split_at(blob.len() - DIGEST);
    if Sha256::digest(whole).as_slice() != digest {
        fail!(
            InvalidArg,
            "the handshake blob is damaged: its SHA-256 does not fit its bytes"
        );
    }
    if version > VERSION {
        fail!(
            Incompatible,
            "the handshake blob was made by a newer library: format {version}, this one reads {VERSION}"
        );
    }
    if version != VERSION {
        fail!(
            InvalidArg,
            "the handshake blob has format {version}, which never existed"
        );
    }
    Ok(&whole[HEADER..])
}

/// Whether the two nodes can work together.
pub fn check(own: &Facts, theirs: &Facts) -> Result<()> {
    if own.backend != theirs.backend {
        fail!(
            Incompatible,
            "backend is {} there, but {} here",
            name_of(theirs.backend),
            name_of(own.backend)
        );
    }
    if !fingerprint::compatible(&own.fingerprint, &theirs.fingerprint) {
        fail!(
            Incompatible,
            "fingerprint is {} there, but {} here: the model configurations differ",
            theirs.fingerprint,
            own.fingerprint
        );
    }
    if own.region.block_len() != theirs.region.block_len() {
        fail!(
            Incompatible,
            "block_len is {} there, but {} here",
            theirs.region.block_len(),
            own.region.block_len()
        );
    }
    Ok(())
}

fn number_of(backend: Kind) -> u32 {
    match backend {
        Kind::Local => 1,
        Kind::Nixl => 2,
    }
}

fn kind_of(number: u32) -> Option<Kind> {
    [Kind::Local, Kind::Nixl]
        .into_iter()
        .find(|kind| number_of(*kind) == number)
}

fn name_of(backend: Kind) -> &'static str {
    match backend {
        Kind::Local => "LOCAL",
        Kind::Nixl => "NIXL",
    }
}

/// What is left to read.
struct Fields<'a>(&'a [u8]);

impl<'a> Fields<'a> {
    fn bytes(&mut self, name: &str, len: u64) -> Result<&'a [u8]> {
        let split = usize::try_from(len)
            .ok()
            .and_then(|len| self.0.split_at_checked(len));
        let Some((bytes, left)) = split else {
            return Err(Error::new(
                Status::InvalidArg,
                format!(
                    "the handshake blob ends in its {name}: {len} bytes, of which {} are there",
                    self.0.len()
                ),
            ));
        };
        self.0 = left;
        Ok(bytes)
    }

    fn u32(&mut self, name: &str) -> Result<u32> {
        let bytes = self.bytes(name, 4)?;
        Ok(u32::from_le_bytes(bytes.try_into().expect("4 bytes")))
    }

    fn u64(&mut self, name: &str) -> Result<u64> {
        let bytes = self.bytes(name, 8)?;
        Ok(u64::from_le_bytes(bytes.try_into().expect("8 bytes")))
    }
}

#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
#[cfg(test)]
mod tests;
