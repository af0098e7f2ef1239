//! LOCAL refuses what does not fit, is a lie, or is not permitted.

mod local_common;

use datatransport::backend::Backend;
use datatransport::backend::local::Local;
use datatransport::error::Status;
use datatransport::region::{LocalRegion, Region};
use local_common::{Backing, Child, Node, body, forge, pattern, serve, skip, status};
use serde_json::json;

#[test]
fn child_main() {
    serve();
}

#[test]
fn hostile_metadata_is_refused() {
    let mut child = Child::new();
    let peer = child.create(Backing::Shared, 16, 4096);
    let good = body(&peer.metadata);
    let mut node = Node::new(Backing::Foreign, 16, 4096);
    assert!(
        node.connect(&peer.metadata, peer.region).is_ok(),
        "what is true works"
    );
    let own = std::process::id();
    let cases = [
        (
            "/boot_id",
            json!("another"),
            Status::Incompatible,
            "another host",
        ),
        ("/pid_ns", json!(1), Status::Incompatible, "pid namespace"),
        (
            "/pid",
            json!(4_194_303),
            Status::PeerLost,
            "process 4194303 is gone",
        ),
        // Started in the same tick of the clock, it is told by its descriptors.
        ("/pid", json!(own), Status::PeerLost, ""),
        ("/pid", json!(1), Status::PeerLost, "another process now"),
        (
            "/start_time",
            json!(1),
            Status::PeerLost,
            "another process now",
        ),
        (
            "/incarnation",
            json!("0".repeat(32)),
            Status::PeerLost,
            "another transport",
        ),
        (
            "/control/ino",
            json!(1),
            Status::PeerLost,
            "closed its transport or restarted",
        ),
        (
            "/control/fd",
            json!(999_999),
            Status::PeerLost,
            "closed its transport or restarted",
        ),
        (
            "/control",
            good["region_fd"].clone(),
            Status::InvalidArg,
            "malformed",
        ),
        (
            "/base",
            json!(1),
            Status::InvalidArg,
            "no mapping can have it",
        ),
        (
            "/num_blocks",
            json!(15),
            Status::Incompatible,
            "is outside the region",
        ),
        ("/pid", json!("x"), Status::InvalidArg, "malformed"),
    ];
    for (field, value, expected, sentence) in cases {
        let mut bad = good.clone();
        *bad.pointer_mut(field).unwrap() = value;
        let error = node.connect(&forge(&bad), peer.region).unwrap_err();
        assert_eq!(error.status, expected, "{field}: {error}");
        assert!(error.message.contains(sentence), "{field}: {error}");
    }
    // A file that is no control page, under its true name.
    let mut bad = good.clone();
    for part in ["fd", "dev", "ino"] {
        bad["control"][part] = good["region_fd"][part].clone();
    }
    assert_eq!(
        status(node.connect(&forge(&bad), peer.region)),
        Status::PeerLost
    );
    // What leads past the control page: the peer vouches for its metadata as a whole.
    let changed = |field: &str, value: serde_json::Value| {
        let mut bad = good.clone();
        *bad.pointer_mut(field).unwrap() = value;
        forge(&bad)
    };
    let nowhere = Region::new(1 << 20, 16, 4096).unwrap();
    for (blob, region) in [
        (changed("/region_fd/offset", json!(4096)), peer.region),
        (changed("/base", json!(1 << 20)), nowhere),
        (changed("/fuse", json!(peer.region.base())), peer.region),
        (changed("/agent_name", json!("somebody else")), peer.region),
    ] {
        let error = node.connect(&blob, region).unwrap_err();
        assert_eq!(error.status, Status::InvalidArg, "{error}");
        assert!(error.message.contains("changed on the way"), "{error}");
    }
    // Our own transport, said to be in another process: its address must not be taken for ours.
    let mut bad = body(node.local.metadata());
    for part in ["pid", "start_time"] {
        bad[part] = good[part].clone();
    }
    assert_eq!(
        status(node.connect(&forge(&bad), node.region)),
        Status::PeerLost
    );
    // Our own identity with an address that is not ours.
    let mut bad = body(node.local.metadata());
    bad["base"] = json!(1 << 20);
    assert_eq!(
        status(node.connect(&forge(&bad), nowhere)),
        Status::Incompatible
    );
}

#[test]
fn regions_that_are_not_there_are_refused() {
    use std::os::fd::AsRawFd;
    let node = Node::new(Backing::Shared, 16, 4096);
    let other = Node::new(Backing::Shared, 16, 4096);
    let fd = node.memory.fd.as_ref().unwrap().as_raw_fd();
    let (pipe, _end) = rustix::pipe::pipe().unwrap();
    // SAFETY: the transports are dropped at once, before the memory of the nodes.
    let memory = |region| unsafe { LocalRegion::new(region) };
    let create = |region, fd| Local::create(memory(region), fd, "x").map(|_| ());
    let cases = [
        (
            Region::new(4096, 1, 4096).unwrap(),
            None,
            "nothing is mapped at 0x1000",
        ),
        (node.region, Some((-1, 0)), "region_fd is -1"),
        (
            node.region,
            Some((pipe.as_raw_fd(), 0)),
            "not a regular file",
        ),
        (node.region, Some((fd, 1)), "region_offset is 1"),
        (node.region, Some((fd, 4096)), "has only 65536"),
        (node.region, Some((fd, u64::MAX - 4095)), "has only 65536"),
        (other.region, Some((fd, 0)), "region_fd is not the file"),
        (
            Region::new(node.region.base() + 4096, 1, 4096).unwrap(),
            Some((fd, 0)),
            "offset 4096",
        ),
    ];
    for (region, fd, sentence) in cases {
        let error = create(region, fd).unwrap_err();
        assert_eq!(error.status, Status::InvalidArg, "{error}");
        assert!(error.message.contains(sentence), "{error}");
    }
    let part = Region::new(node.region.base() + 4096, 2, 4096).unwrap();
    create(part, Some((fd, 4096))).unwrap();
    assert_eq!(
        status(Local::create(memory(node.region), None, &"n".repeat(70_000)).map(|_| ())),
        Status::InvalidArg
    );
}

#[test]
fn the_range_must_consist_of_the_peers_blocks() {
    let mut child = Child::new();
    let peer = child.create(Backing::Shared, 64, 1000);
    let base = peer.region.base();
    let mut node = Node::new(Backing::Foreign, 64, 1000);
    let other = Region::new(base, 10, 500).unwrap();
    // Another length than its own, and one that both sides here agree on but the peer does not.
    for node in [&mut node, &mut Node::new(Backing::Foreign, 64, 500)] {
        let error = node.connect(&peer.metadata, other).unwrap_err();
        assert_eq!(error.status, Status::Incompatible);
        let named = ["block_len", "500", "1000"];
        assert!(
            named.iter().all(|word| error.message.contains(word)),
            "{error}"
        );
    }
    let between = Region::new(base + 7250, 10, 1000).unwrap();
    let error = node.connect(&peer.metadata, between).unwrap_err();
    assert_eq!(error.status, Status::Incompatible);
    for named in ["base_addr", &format!("{:#x}", base + 7250), "250", "1000"] {
        assert!(error.message.contains(named), "{error}");
    }
    let here = node.described();
    let between = Region::new(here.region.base() + 1, 10, 1000).unwrap();
    assert_eq!(
        status(node.connect(&here.metadata, between)),
        Status::Incompatible
    );
    assert!(node.connect_to(&peer).is_ok());
}

fn is_root() -> bool {
    let root = rustix::process::getuid().is_root();
    if !root {
        skip("this test must be run by root, to run processes of another user".into());
    }
    root
}

const NOBODY: u32 = 65534;

#[test]
fn a_peer_that_may_not_be_looked_into_is_refused_with_the_remedy() {
    if !is_root() {
        return;
    }
    for backing in [Backing::Shared, Backing::Foreign] {
        let (mut target, mut initiator) = (Child::as_user(NOBODY), Child::as_user(NOBODY));
        let peer = target.create(backing, 4, 4096);
        initiator.create(Backing::Foreign, 4, 4096);
        initiator.connect(&peer).unwrap();
        initiator.ask("write").unwrap();
        target.ask("dumpable0").unwrap();
        let error = initiator.connect(&peer).unwrap_err();
        assert!(error.starts_with("Unavailable: "), "{error}");
        for word in [
            "permission",
            "uid",
            "dumpable",
            "PR_SET_DUMPABLE",
            "CAP_SYS_PTRACE",
        ] {
            assert!(error.contains(word), "{word} in {error}");
        }
        assert!(error.contains("(it is not dumpable)"), "{error}");
        // Another user's process may not either; a privileged one may.
        let mut stranger = Child::as_user(NOBODY - 1);
        stranger.create(Backing::Foreign, 4, 4096);
        let error = stranger.connect(&peer).unwrap_err();
        assert!(error.starts_with("Unavailable: "), "{error}");
        assert!(
            error.contains("(it has uid 65534, this process 65533)"),
            "{error}"
        );
        let mut node = Node::new(Backing::Foreign, 4, 4096);
        assert!(node.connect_to(&peer).is_ok());
    }
}

/// As between two containers of which one has dropped its capabilities.
#[test]
fn a_peer_with_more_capabilities_is_refused_and_they_are_named() {
    if !is_root() {
        return;
    }
    let (mut target, mut initiator) = (Child::new(), Child::new());
    let peer = target.create(Backing::Shared, 4, 4096);
    initiator.create(Backing::Shared, 4, 4096);
    initiator.connect(&peer).unwrap();
    initiator.ask("no_capabilities").unwrap();
    let error = initiator.connect(&peer).unwrap_err();
    assert!(error.starts_with("Unavailable: "), "{error}");
    assert!(
        error.contains("(it has capabilities that this process lacks: 0x"),
        "{error}"
    );
    assert!(error.contains("with the same capabilities"), "{error}");
    // Who has none either is reached.
    let mut alike = Child::new();
    alike.ask("no_capabilities").unwrap();
    let peer = alike.create(Backing::Shared, 4, 4096);
    initiator.connect(&peer).unwrap();
    initiator.ask("fill 5").unwrap();
    initiator.ask("write").unwrap();
    assert!(alike.bytes() == pattern(5, 4 * 4096));
}

#[test]
fn without_process_vm_memory_is_mapped_or_refused_with_the_remedy() {
    let mut initiator = Child::new();
    initiator.create(Backing::Foreign, 4, 4096);
    initiator.ask("fill 3").unwrap();
    initiator.ask("seccomp").unwrap();
    let mut target = Child::new();
    let shared = target.create(Backing::Shared, 4, 4096);
    initiator.connect(&shared).unwrap();
    initiator.ask("write").unwrap();
    assert!(target.bytes() == pattern(3, 4 * 4096));
    for backing in [Backing::Foreign, Backing::Unsealed] {
        let mut target = Child::new();
        let peer = target.create(backing, 4, 4096);
        let error = initiator.connect(&peer).unwrap_err();
        assert!(error.starts_with("Unavailable: "), "{error}");
        for word in ["process_vm", "seccomp", "ptrace_scope", "dt_region_alloc"] {
            assert!(error.contains(word), "{word} in {error}");
        }
        if backing == Backing::Unsealed {
            assert!(error.contains("F_SEAL_SHRINK"), "{error}");
        }
        // `dt_last_error` shows 511 bytes, and names the peer before this.
        assert!(error.len() < 425, "{} bytes: {error}", error.len());
    }
}
