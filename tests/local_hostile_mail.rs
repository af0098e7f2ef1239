//! Messages over LOCAL when somebody who may open mailboxes, or may not, means harm.

mod local_common;

use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

use datatransport::backend::{Backend, MAX_MESSAGE};
use datatransport::error::{Error, Status};
use local_common::messages::{
    check_numbered, mailbox, mailbox_path, numbered, receive, received, send_patiently,
};
use local_common::{Backing, Child, Described, Node, PATIENCE, body, forge, serve, skip};
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, fstat, ftruncate, memfd_create};
use serde_json::json;
use sha2::{Digest, Sha256};

#[test]
fn child_main() {
    serve();
}

const DIRECTORY: u64 = 64 << 10;
const RING: u64 = 1 << 20;
const LANES: u64 = 1021;

fn node(name: &str) -> Node {
    Node::named(name, Backing::Foreign, 4, 4096)
}

#[test]
fn only_its_user_reaches_a_mailbox() {
    if !rustix::process::getuid().is_root() {
        return skip("this test must be run by root, to run processes of another user".into());
    }
    let mut child = Child::as_user(65534);
    let peer = child.create(Backing::Foreign, 4, 4096);
    let open_as = |uid: u32| {
        let script = format!("exec 3<> {}", mailbox_path(&peer));
        let mut shell = Command::new("sh");
        shell
            .args(["-c", &script])
            .uid(uid)
            .gid(uid)
            .current_dir("/");
        shell.stderr(Stdio::null()).status().unwrap().success()
    };
    assert!(open_as(65534) && !open_as(65533));
    // And no socket of ours is there for anybody.
    let own = std::fs::read_dir(format!("/proc/{}/fd", child.pid())).unwrap();
    for fd in own {
        let target = std::fs::read_link(fd.unwrap().path()).unwrap();
        assert!(
            !target.to_string_lossy().starts_with("socket:"),
            "{target:?}"
        );
    }
}

/// Has a transport vouch for other metadata than its own.
fn vouch(peer: &Described, metadata: &[u8]) {
    let body = body(&peer.metadata);
    let path = format!("/proc/{}/fd/{}", body["pid"], body["control"]["fd"]);
    let page = std::fs::File::options().write(true).open(path).unwrap();
    for (word, bytes) in Sha256::digest(metadata)[..16].chunks(8).enumerate() {
        let number = u64::from_be_bytes(bytes.try_into().unwrap());
        let at = (4 + word as u64) * 8;
        page.write_all_at(&number.to_ne_bytes(), at).unwrap();
    }
}

/// What a sender says of a peer whose metadata names `file` as its mailbox.
fn send_to(file: &OwnedFd) -> Error {
    let target = node("target");
    let peer = target.described();
    let stat = fstat(file).unwrap();
    let mut lie = body(&peer.metadata);
    lie["mail"] = json!({ "fd": file.as_raw_fd(), "dev": stat.st_dev, "ino": stat.st_ino });
    let lie = forge(&lie);
    vouch(&peer, &lie);
    let mut sender = node("sender");
    let conn = sender.connect(&lie, peer.region).unwrap();
    sender.local.send(conn, b"message").unwrap_err()
}

fn memory(size: u64, seals: SealFlags) -> OwnedFd {
    let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
    let file = memfd_create("dt-test", flags).unwrap();
    ftruncate(&file, size).unwrap();
    fcntl_add_seals(&file, seals).unwrap();
    file
}

#[test]
fn what_is_no_mailbox_is_not_written_to() {
    let size = DIRECTORY + RING;
    let sealed = SealFlags::SHRINK | SealFlags::GROW;
    let (pipe, _end) = rustix::pipe::pipe().unwrap();
    let stranger = node("stranger");
    let strange: OwnedFd = mailbox(&stranger.described()).into();
    for (file, sentence) in [
        (memory(size, SealFlags::GROW), "not sealed"),
        (memory(0, sealed), "kind or size"),
        (memory(DIRECTORY - 1, sealed), "kind or size"),
        (memory(DIRECTORY, sealed), "kind or size"),
        (memory(size + 1, sealed), "kind or size"),
        (memory(size, sealed), "not one of this version"),
        (pipe, "is not the mailbox any more"),
        (strange, "another transport"),
    ] {
        let error = send_to(&file);
        assert_eq!(error.status, Status::PeerLost, "{error}");
        assert!(error.message.contains(sentence), "{error}");
    }
    // Its pages may be forbidden, which is no signal either.
    let error = send_to(&memory(size, sealed | SealFlags::FUTURE_WRITE));
    assert!(
        error.message.contains("mapping the peer's mailbox"),
        "{error}"
    );
}

// A program of the same user may write anything anywhere in the file. It destroys messages; nothing
// else happens, and who comes later is heard.
#[test]
fn garbage_in_all_of_a_mailbox_ends_in_a_counter() {
    let mut producer = node("producer");
    let file = mailbox(&producer.described());
    let mut random = 0x1234_5678_9abc_def1_u64;
    let mut next = || {
        random ^= random << 13;
        random ^= random >> 7;
        random ^= random << 17;
        random
    };
    let mut consumers: Vec<Node> = (0..3).map(|n| node(&n.to_string())).collect();
    let conns: Vec<_> = consumers
        .iter_mut()
        .map(|consumer| consumer.connect_to(&producer.described()).unwrap())
        .collect();
    for round in 0..2000 {
        for (consumer, conn) in consumers.iter_mut().zip(&conns) {
            let message = vec![round as u8; next() as usize % 2000 + 1];
            if let Err(error) = consumer.local.send(*conn, &message) {
                assert_eq!(error.status, Status::Busy, "{error}");
            }
        }
        // The header is read when a sender opens the file; the bells and the lanes all the time.
        let at = match next() % 4 {
            0 => 64 + next() % 128,
            1 => 192 + next() % 400,
            _ => DIRECTORY + next() % (3 * RING),
        };
        let value = match next() % 4 {
            0 => next(),
            1 => next() % (2 * RING),
            2 => 0,
            _ => u64::MAX / 2,
        };
        file.write_all_at(&value.to_le_bytes(), at).unwrap();
        for (_, bytes) in received(&mut producer) {
            assert!((1..=MAX_MESSAGE).contains(&bytes.len()));
        }
    }
    let refused = producer.local.refused_messages();
    assert!(refused > 10, "{refused}");
    drop(consumers);
    for _ in 0..2 * LANES {
        received(&mut producer);
    }
    let mut late = node("9");
    let conn = late.connect_to(&producer.described()).unwrap();
    let mut messages = Vec::new();
    for n in 0..100 {
        send_patiently(&mut late, conn, &numbered(9, n, 100)).unwrap();
        messages.extend(received(&mut producer));
    }
    assert_eq!(check_numbered(messages, 100), "9=100");
    let refused = producer.local.refused_messages();
    producer.local.try_close().unwrap();
    assert_eq!(producer.local.refused_messages(), refused);
}

#[test]
fn a_flood_of_bells_delays_nobody_and_takes_no_memory() {
    let mut producer = node("producer");
    let peer = producer.described();
    let mut consumer = Child::new();
    consumer.create_named("5", Backing::Foreign, 4, 4096);
    consumer.connect(&peer).unwrap();
    let file = mailbox(&peer);
    let end = AtomicBool::new(false);
    std::thread::scope(|scope| {
        scope.spawn(|| {
            let deadline = Instant::now() + PATIENCE;
            while !end.load(Ordering::Relaxed) && Instant::now() < deadline {
                file.write_all_at(&[0xff; 128], 64).unwrap();
            }
        });
        consumer.tell("send_patiently 5 2000 3000");
        let messages = receive(&mut producer, 2000);
        end.store(true, Ordering::Relaxed);
        assert_eq!(check_numbered(messages, 3000), "5=2000");
    });
    assert_eq!(consumer.answer().unwrap(), "2000 Ok");
    assert_eq!(producer.local.refused_messages(), 0);
    drop(consumer);
    for _ in 0..3 {
        assert!(received(&mut producer).is_empty());
    }
    let bytes = fstat(&file).unwrap().st_blocks as u64 * 512;
    assert!(bytes <= DIRECTORY, "{bytes}");
}

#[test]
fn nobody_can_cut_a_mailbox_short() {
    let mut producer = node("producer");
    let mut consumer = node("consumer");
    let conn = consumer.connect_to(&producer.described()).unwrap();
    consumer.local.send(conn, b"one").unwrap();
    let file = mailbox(&producer.described());
    for size in [0, DIRECTORY, DIRECTORY + 2000 * RING] {
        assert!(file.set_len(size).is_err());
    }
    assert!(fcntl_add_seals(&file, SealFlags::WRITE).is_err());
    // Holes can be made, and are zeros.
    let hole = rustix::fs::FallocateFlags::PUNCH_HOLE | rustix::fs::FallocateFlags::KEEP_SIZE;
    rustix::fs::fallocate(&file, hole, 0, DIRECTORY + RING).unwrap();
    assert!(received(&mut producer).is_empty());
    // Nobody finds that lane again, but nobody falls over it.
    let _ = consumer.local.send(conn, b"two");
    received(&mut producer);
    let mut other = node("other");
    let conn = other.connect_to(&producer.described()).unwrap();
    let error = other.local.send(conn, b"three").unwrap_err();
    assert_eq!(error.status, Status::PeerLost, "{error}");
}
