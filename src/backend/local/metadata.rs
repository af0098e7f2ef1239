//! What a transport tells its peers about itself, as bytes.
//!
//! Magic `DTLOCAL\0`, format version and body length (u32, little-endian), a JSON body, and the
//! first 8 bytes of SHA-256 over all before. The checksum finds accidents, not forgery: everything
//! in here is a claim, and whoever connects checks it against the kernel.

use serde::{Deserialize, Serialize};
use sha2::{Digest, Sha256};

use super::identity::{Host, ProcessId};
use super::mapping::page_size;
use crate::backend::MAX_NAME;
use crate::error::{Error, Result, Status, fail};
use crate::handshake::check_is_metadata;
use crate::region::Region;

const MAGIC: &[u8; 8] = b"DTLOCAL\0";
/// 1 had no mailbox.
const VERSION: u32 = 2;
const HEADER: usize = MAGIC.len() + 4 + 4;
const CHECKSUM: usize = 8;
/// Longest metadata, written or taken: several times what the longest name makes.
const MAX_BYTES: usize = 64 << 10;
/// How NIXL's own metadata begins.
const NIXL: &[u8] = b"nixlSerDes|";

/// A file descriptor of the peer, and the file that it must be found to stand for.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub(super) struct FileRef {
    /// Its number in the peer's process.
    pub(super) fd: i32,
    /// Device of the file.
    pub(super) dev: u64,
    /// Inode of the file.
    pub(super) ino: u64,
}

/// The file behind the peer's region, and where in it the region starts.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) struct RegionFile {
    /// The file.
    pub(super) file: FileRef,
    /// Offset of the region's base.
    pub(super) offset: u64,
}

/// The checked content of metadata. Checked means: possible, not true.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(super) struct Metadata {
    /// The peer's host.
    pub(super) host: Host,
    /// The peer's process.
    pub(super) process: ProcessId,
    /// Random number of one transport.
    pub(super) incarnation: u128,
    /// The name that the peer gave itself.
    pub(super) agent_name: String,
    /// The peer's region.
    pub(super) region: Region,
    /// The peer's control page.
    pub(super) control: FileRef,
    /// The peer's mailbox.
    pub(super) mail: FileRef,
    /// Address of the peer's fuse.
    pub(super) fuse: u64,
    /// What backs the peer's region, if it has a file descriptor.
    pub(super) region_file: Option<RegionFile>,
}

/// The body as it is written. Unknown fields are refused: a new field is a new format version.
#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct Body {
    boot_id: String,
    pid_ns: u64,
    pid: i64,
    start_time: u64,
    incarnation: String,
    agent_name: String,
    base: u64,
    num_blocks: u64,
    block_len: u64,
    control: FileRef,
    mail: FileRef,
    fuse: u64,
    #[serde(default, skip_serializing_if = "Option::is_none")]
    region_fd: Option<RegionFileBody>,
}

#[derive(Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
struct RegionFileBody {
    fd: i32,
    dev: u64,
    ino: u64,
    offset: u64,
}

impl Metadata {
    /// The bytes for peers.
    pub(super) fn encode(&self) -> Result<Vec<u8>> {
        check_name(&self.agent_name)?;
        let body = Body {
            boot_id: self.host.boot_id.clone(),
            pid_ns: self.host.pid_ns,
            pid: self.process.pid().into(),
            start_time: self.process.start(),
            incarnation: format!("{:032x}", self.incarnation),
            agent_name: self.agent_name.clone(),
            base: self.region.base(),
            num_blocks: self.region.num_blocks(),
            block_len: self.region.block_len(),
            control: self.control,
            mail: self.mail,
            fuse: self.fuse,
            region_fd: self
                .region_file
                .map(|RegionFile { file, offset }| RegionFileBody {
                    fd: file.fd,
                    dev: file.dev,
                    ino: file.ino,
                    offset,
                }),
        };
        let body = serde_json::to_vec(&body).map_err(|error| {
            Error::new(Status::Internal, format!("cannot write metadata: {error}"))
        })?;
        Ok(frame(VERSION, &body))
    }

    /// Takes apart what claims to be metadata.
    pub(super) fn parse(blob: &[u8]) -> Result<Metadata> {
        if blob.starts_with(NIXL) {
            fail!(
                Incompatible,
                "agent_metadata is NIXL metadata, but this transport is LOCAL"
            );
        }
        check_is_metadata(blob)?;
        if blob.len() > MAX_BYTES {
            fail!(
                InvalidArg,
                "agent_metadata has {} bytes; the limit is {MAX_BYTES}",
                blob.len()
            );
        }
        let Some(rest) = blob.strip_prefix(MAGIC) else {
            fail!(
                InvalidArg,
                "agent_metadata does not begin as metadata of a LOCAL transport does"
            );
        };
        let (Some(version), Some(body_len)) = (u32_at(rest, 0), u32_at(rest, 4)) else {
            fail!(
                InvalidArg,
                "agent_metadata ends after {} bytes, inside its header",
                blob.len()
            );
        };
        if version > VERSION {
            fail!(
                Incompatible,
                "agent_metadata has format version {version}, but this library reads version {VERSION}: update it"
            );
        }
        if version == 0 {
            fail!(
                InvalidArg,
                "agent_metadata has format version 0, which never existed"
            );
        }
        if version < VERSION {
            fail!(
                Incompatible,
                "agent_metadata has format version {version}, but this library reads version {VERSION}: update the peer"
            );
        }
        if blob.len() as u64 != HEADER as u64 + u64::from(body_len) + CHECKSUM as u64 {
            fail!(
                InvalidArg,
                "agent_metadata has {} bytes, but its header tells of {}",
                blob.len(),
                HEADER as u64 + u64::from(body_len) + CHECKSUM as u64
            );
        }
        let (signed, sum) = blob.split_at(blob.len() - CHECKSUM);
        if checksum(signed) != sum {
            fail!(
                InvalidArg,
                "agent_metadata is damaged: its checksum does not fit its bytes"
            );
        }
        let body: Body = serde_json::from_slice(&signed[HEADER..]).map_err(|error| {
            Error::new(
                Status::InvalidArg,
                format!("the body of agent_metadata is malformed: {error}"),
            )
        })?;
        Metadata::check(body)
    }

    fn check(body: Body) -> Result<Metadata> {
        let Some(process) = ProcessId::new(body.pid, body.start_time) else {
            fail!(
                InvalidArg,
                "agent_metadata names pid {} started at {}, which no process can have",
                body.pid,
                body.start_time
            );
        };
        check_name(&body.agent_name).map_err(|error| error.context("agent_metadata"))?;
        let hex =
            body.incarnation.len() == 32 && body.incarnation.bytes().all(|b| b.is_ascii_hexdigit());
        let incarnation = u128::from_str_radix(&body.incarnation, 16)
            .ok()
            .filter(|_| hex);
        let Some(incarnation) = incarnation else {
            fail!(
                InvalidArg,
                "the incarnation in agent_metadata is not 32 hexadecimal digits"
            );
        };
        let region = Region::new(body.base, body.num_blocks, body.block_len)
            .map_err(|error| error.context("agent_metadata"))?;
        let region_file = body.region_fd.map(
            |RegionFileBody {
                 fd,
                 dev,
                 ino,
                 offset,
             }| RegionFile {
                file: FileRef { fd, dev, ino },
                offset,
            },
        );
        for fd in [
            Some(body.control.fd),
            Some(body.mail.fd),
            region_file.map(|region| region.file.fd),
        ]
        .into_iter()
        .flatten()
        {
            if fd < 0 {
                fail!(InvalidArg, "agent_metadata names file descriptor {fd}");
            }
        }
        if let Some(RegionFile { offset, .. }) = region_file {
            let end = offset
                .checked_add(region.bytes())
                .filter(|end| i64::try_from(*end).is_ok());
            if end.is_none() || offset % page_size() != region.base() % page_size() {
                fail!(
                    InvalidArg,
                    "agent_metadata has its region of {} bytes at {:#x} at offset {offset} of a file, where no \
                     mapping can have it",
                    region.bytes(),
                    region.base()
                );
            }
        }
        Ok(Metadata {
            host: Host {
                boot_id: body.boot_id,
                pid_ns: body.pid_ns,
            },
            process,
            incarnation,
            agent_name: body.agent_name,
            region,
            control: body.control,
            mail: body.mail,
            fuse: body.fuse,
            region_file,
        })
    }
}

/// The bytes around a body.
fn frame(version: u32, body: &[u8]) -> Vec<u8> {
    let mut blob = Vec::with_capacity(HEADER + body.len() + CHECKSUM);
    blob.extend_from_slice(MAGIC);
    blob.extend_from_slice(&version.to_le_bytes());
    blob.extend_from_slice(&(body.len() as u32).to_le_bytes());
    blob.extend_from_slice(body);
    let sum = checksum(&blob);
    blob.extend_from_slice(&sum);
    blob
}

fn check_name(name: &str) -> Result<()> {
    if name.len() > MAX_NAME {
        fail!(
            InvalidArg,
            "agent_name is {} bytes long; the limit is {MAX_NAME}",
            name.len()
        );
    }
    // C programs would see another name.
    if name.contains('\0') {
        fail!(InvalidArg, "agent_name has a NUL in it");
    }
    Ok(())
}

/// A number that stands for metadata as it was given out.
pub(super) fn digest(blob: &[u8]) -> u128 {
    let digest = Sha256::digest(blob);
    u128::from_be_bytes(std::array::from_fn(|i| digest[i]))
}

fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    Some(u32::from_le_bytes(bytes.get(at..at + 4)?.try_into().ok()?))
}

fn checksum(bytes: &[u8]) -> [u8; CHECKSUM] {
    let digest = Sha256::digest(bytes);
    std::array::from_fn(|i| digest[i])
}

#[cfg(any(test, fuzzing))]
pub(super) mod fuzz;
#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    fn sample() -> Metadata {
        Metadata {
            host: Host {
                boot_id: "0a1b".into(),
                pid_ns: 4026531836,
            },
            process: ProcessId::new(4321, 987654).unwrap(),
            incarnation: 0x0123456789abcdef0fedcba987654321,
            agent_name: "prefill \"0\" \u{e9}".into(),
            region: Region::new(0x7f0000001000, 64, 4096).unwrap(),
            control: FileRef {
                fd: 5,
                dev: 1,
                ino: 77,
            },
            mail: FileRef {
                fd: 7,
                dev: 1,
                ino: 79,
            },
            fuse: 0x7e0000000000,
            region_file: Some(RegionFile {
                file: FileRef {
                    fd: 6,
                    dev: 1,
                    ino: 78,
                },
                offset: page_size() * 3,
            }),
        }
    }

    fn body_of(blob: &[u8]) -> String {
        String::from_utf8(blob[HEADER..blob.len() - CHECKSUM].to_vec()).unwrap()
    }

    fn status(blob: &[u8]) -> Status {
        Metadata::parse(blob).unwrap_err().status
    }

    #[test]
    fn comes_back_as_it_was() {
        let with_file = sample();
        assert_eq!(
            Metadata::parse(&with_file.encode().unwrap()).unwrap(),
            with_file
        );
        let without = Metadata {
            region_file: None,
            ..sample()
        };
        assert_eq!(
            Metadata::parse(&without.encode().unwrap()).unwrap(),
            without
        );
        assert_eq!(
            frame(VERSION, body_of(&with_file.encode().unwrap()).as_bytes()),
            with_file.encode().unwrap()
        );
    }

    #[test]
    fn every_truncation_and_any_tail_is_malformed() {
        let blob = sample().encode().unwrap();
        for len in 0..blob.len() {
            assert_eq!(
                status(&blob[..len]),
                Status::InvalidArg,
                "first {len} bytes"
            );
        }
        assert_eq!(status(&[&blob[..], b"\0"].concat()), Status::InvalidArg);
    }

    #[test]
    fn every_flipped_bit_is_found() {
        let blob = sample().encode().unwrap();
        let version = MAGIC.len()..MAGIC.len() + 4;
        for bit in 0..blob.len() * 8 {
            let mut bad = blob.clone();
            bad[bit / 8] ^= 1 << (bit % 8);
            // A version that is higher is no damage, as far as anybody can tell.
            let newer = version.contains(&(bit / 8)) && bit != version.start * 8 + 1;
            let expected = if newer {
                Status::Incompatible
            } else {
                Status::InvalidArg
            };
            assert_eq!(status(&bad), expected, "bit {bit}");
        }
    }

    #[test]
    fn says_what_else_it_is() {
        let error = Metadata::parse(b"nixlSerDes|whatever").unwrap_err();
        assert_eq!(error.status, Status::Incompatible);
        assert!(
            error.message.contains("NIXL") && error.message.contains("LOCAL"),
            "{error}"
        );
        let error = Metadata::parse(&frame(7, b"{}")).unwrap_err();
        assert_eq!(error.status, Status::Incompatible);
        assert!(
            error.message.contains("version 7") && error.message.contains("version 2"),
            "{error}"
        );
        let error = Metadata::parse(&frame(1, b"{}")).unwrap_err();
        assert_eq!(error.status, Status::Incompatible);
        assert!(error.message.contains("update the peer"), "{error}");
        assert_eq!(status(&frame(0, b"{}")), Status::InvalidArg);
        assert_eq!(status(&vec![b'x'; MAX_BYTES + 1]), Status::InvalidArg);
        assert_eq!(status(&frame(VERSION, &[b'['; 60_000])), Status::InvalidArg);
    }

    #[test]
    fn nonsense_in_a_good_frame_is_malformed() {
        let good = body_of(&sample().encode().unwrap());
        for (from, to) in [
            ("\"pid\":4321", "\"pid\":0"),
            ("\"pid\":4321", "\"pid\":-1"),
            ("\"pid\":4321", "\"pid\":4194304"),
            ("\"pid\":4321", "\"pid\":1e3"),
            ("\"pid\":4321", "\"pid\":99999999999999999999"),
            ("\"pid\":4321", "\"pid\":4321,\"pid\":4321"),
            ("\"pid\":4321", "\"pid\":4321,\"extra\":1"),
            (
                "\"start_time\":987654",
                "\"start_time\":18446744073709551615",
            ),
            ("0123456789abcdef", "0123456789abcde"),
            ("0123456789abcdef", "+123456789abcdef"),
            ("\"num_blocks\":64", "\"num_blocks\":0"),
            ("\"num_blocks\":64", "\"num_blocks\":18446744073709551615"),
            ("\"block_len\":4096", "\"block_len\":0"),
            ("\"fd\":5", "\"fd\":-1"),
            ("\"fd\":7", "\"fd\":-7"),
            ("\"fd\":6", "\"fd\":-6"),
            ("\"fd\":6", "\"fd\":4294967296"),
            ("\"offset\":", "\"offset\":1"),
            ("\"offset\":", "\"offset\":922337203685477"),
            ("\"base\":", "\"base\":9999999"),
        ] {
            let bad = good.replacen(from, to, 1);
            assert_ne!(bad, good, "{from} is not in {good}");
            assert_eq!(
                status(&frame(VERSION, bad.as_bytes())),
                Status::InvalidArg,
                "{bad}"
            );
        }
    }

    #[test]
    fn a_name_that_does_not_fit_is_refused() {
        let named = |agent_name: String| Metadata {
            agent_name,
            ..sample()
        };
        let error = named("n".repeat(1001)).encode().unwrap_err();
        assert_eq!(
            (error.status, error.message.as_str()),
            (
                Status::InvalidArg,
                "agent_name is 1001 bytes long; the limit is 1000"
            )
        );
        // The characters that JSON makes most of.
        for longest in ["n".repeat(1000), "\u{1}".repeat(1000)] {
            let fits = named(longest);
            assert_eq!(Metadata::parse(&fits.encode().unwrap()).unwrap(), fits);
        }
        assert_eq!(
            named("a\0b".into()).encode().unwrap_err().status,
            Status::InvalidArg
        );
        let good = body_of(&named("n".repeat(1000)).encode().unwrap());
        let bad = good.replace("nnn", "nnnn");
        assert_eq!(status(&frame(VERSION, bad.as_bytes())), Status::InvalidArg);
    }

    proptest! {
        #[test]
        fn bytes_never_panic(bytes in prop::collection::vec(any::<u8>(), 0..300)) {
            prop_assert!(Metadata::parse(&bytes).is_err());
            let _ = Metadata::parse(&[&MAGIC[..], &bytes].concat());
            prop_assert!(Metadata::parse(&frame(VERSION, &bytes)).is_err());
        }

        // Mutations behind a good checksum reach the checks of the content.
        #[test]
        fn mutated_bodies_never_panic(
            edits in prop::collection::vec((any::<prop::sample::Index>(), any::<u8>()), 1..6),
        ) {
            let mut body = body_of(&sample().encode().unwrap()).into_bytes();
            for (at, byte) in edits {
                let at = at.index(body.len());
                body[at] = byte;
            }
            if let Err(error) = Metadata::parse(&frame(VERSION, &body)) {
                prop_assert_eq!(error.status, Status::InvalidArg);
            }
        }
    }
}
