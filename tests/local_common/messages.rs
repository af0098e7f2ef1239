//! Messages, and the commands of a child that are about them.

use std::collections::BTreeMap;
use std::fs::File;
use std::os::fd::AsRawFd;
use std::time::Instant;

use datatransport::backend::{Backend, ConnId, MAX_MESSAGE, Message};
use datatransport::error::{Result, Status};
use datatransport::region::Region;

use super::{
    Described, Node, PATIENCE, body, from_hex, holdings, limit_descriptors, raise_descriptor_limit,
    say, to_hex,
};

/// The `n`th message of a sender, of 1 to `most` bytes. The receiver makes it again and compares.
pub fn numbered(seed: u64, n: u64, most: u64) -> Vec<u8> {
    let mut state = (seed << 32 | n).wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut next = || {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    let len = 1 + (next() >> 8) % most;
    let mut bytes: Vec<u8> = (0..len.div_ceil(8))
        .flat_map(|_| next().to_le_bytes())
        .collect();
    bytes.truncate(len as usize);
    bytes
}

/// Compares what came from senders called "0", "1", ... with the messages of that seed, continuing
/// where the last call ended in `counts`; how many came of each.
pub fn go_on_checking(
    counts: &mut BTreeMap<u64, u64>,
    messages: Vec<(String, Vec<u8>)>,
    most: u64,
) -> String {
    for (sender, bytes) in messages {
        let seed = sender.parse().unwrap();
        let n = counts.entry(seed).or_default();
        assert!(bytes == numbered(seed, *n, most), "message {n} of {sender}");
        *n += 1;
    }
    let texts = counts.iter().map(|(seed, n)| format!("{seed}={n}"));
    texts.collect::<Vec<_>>().join(" ")
}

/// As [`go_on_checking`], from the first messages on.
pub fn check_numbered(messages: Vec<(String, Vec<u8>)>, most: u64) -> String {
    go_on_checking(&mut BTreeMap::new(), messages, most)
}

/// What was said, whoever did.
pub fn bytes(messages: Vec<(String, Vec<u8>)>) -> Vec<Vec<u8>> {
    messages.into_iter().map(|(_, bytes)| bytes).collect()
}

/// Where the mailbox of a transport is.
pub fn mailbox_path(peer: &Described) -> String {
    let body = body(&peer.metadata);
    format!("/proc/{}/fd/{}", body["pid"], body["mail"]["fd"])
}

/// The mailbox of a transport, as any program of its user can open it.
pub fn mailbox(peer: &Described) -> File {
    let mut options = File::options();
    options
        .read(true)
        .write(true)
        .open(mailbox_path(peer))
        .unwrap()
}

/// What has come, asked for in small portions.
pub fn received(node: &mut Node) -> Vec<(String, Vec<u8>)> {
    let mut messages: Vec<Message> = Vec::new();
    loop {
        let before = messages.len();
        node.local.receive(100, &mut messages);
        assert!(messages.len() - before <= 100);
        if messages.len() == before {
            let pair = |message: Message| (message.sender.to_string(), message.bytes);
            return messages.into_iter().map(pair).collect();
        }
    }
}

/// Asks until there are `count` messages.
pub fn receive(node: &mut Node, count: usize) -> Vec<(String, Vec<u8>)> {
    let deadline = Instant::now() + PATIENCE;
    let mut all = Vec::new();
    while all.len() < count && Instant::now() < deadline {
        all.extend(received(node));
        std::thread::yield_now();
    }
    assert_eq!(all.len(), count, "messages");
    all
}

/// Sends, waiting for room.
pub fn send_patiently(node: &mut Node, conn: ConnId, message: &[u8]) -> Result<()> {
    let deadline = Instant::now() + PATIENCE;
    loop {
        match node.local.send(conn, message) {
            Err(error) if error.status == Status::Busy && Instant::now() < deadline => {
                std::thread::yield_now();
            }
            other => return other,
        }
    }
}

pub fn command(node: &mut Node, peer: Option<(ConnId, Region)>, words: &[&str]) -> Result<String> {
    let number = |i: usize| words[i].parse::<u64>().unwrap();
    let conn = || peer.unwrap().0;
    match words[0] {
        "send" => node.local.send(conn(), &from_hex(words[1]))?,
        // The messages of a seed, until all are sent or one is refused: how many, and why.
        "send_numbered" | "send_patiently" => {
            for n in 0..number(2) {
                let message = numbered(number(1), n, number(3));
                assert!(message.len() <= MAX_MESSAGE);
                let sent = match words[0] {
                    "send_numbered" => node.local.send(conn(), &message),
                    _ => send_patiently(node, conn(), &message),
                };
                if let Err(error) = sent {
                    return Ok(format!("{n} {:?}", error.status));
                }
            }
            return Ok(format!("{} Ok", number(2)));
        }
        "send_and_exit" => {
            node.local.send(conn(), &from_hex(words[1]))?;
            say("ok");
            std::process::exit(0);
        }
        "send_and_close" => {
            node.local.send(conn(), &from_hex(words[1]))?;
            node.local.try_close()?;
        }
        "receive" => {
            let messages = received(node);
            let texts = messages
                .iter()
                .map(|(sender, bytes)| format!("{sender}={}", to_hex(bytes)));
            return Ok(texts.collect::<Vec<_>>().join(" "));
        }
        // Checks all that has come since the child began.
        "receive_numbered" => {
            thread_local! {
                static COUNTS: std::cell::RefCell<BTreeMap<u64, u64>> = const {
                    std::cell::RefCell::new(BTreeMap::new())
                };
            }
            let messages = received(node);
            return Ok(COUNTS.with_borrow_mut(|counts| go_on_checking(counts, messages, number(1))));
        }
        "disconnect" => node.local.disconnect(conn()),
        "holdings" => return Ok(format!("{:?}", holdings())),
        // As send, with room for no more descriptors.
        "starve_send" => {
            limit_descriptors(rustix::io::dup(std::io::stdin()).unwrap().as_raw_fd() as u64);
            let result = node.local.send(conn(), &from_hex(words[1]));
            raise_descriptor_limit();
            result?;
        }
        // A child that ends at once, after dropping all that it has.
        "fork_drop" => {
            // SAFETY: the forked child calls nothing but what works in a copy of one thread.
            unsafe {
                let pid = libc::fork();
                if pid == 0 {
                    let refused = node.local.send(conn(), b"from the child").is_err();
                    let nothing = received(node).is_empty();
                    node.local.force_close();
                    libc::_exit(i32::from(!(refused && nothing)));
                }
                let mut status = -1;
                assert_eq!(libc::waitpid(pid, &mut status, 0), pid);
                assert_eq!(status, 0);
            }
        }
        // A child that does nothing until it is killed: its pid.
        "fork" => {
            // SAFETY: the forked child calls nothing but what works in a copy of one thread.
            let pid = unsafe { libc::fork() };
            if pid == 0 {
                // SAFETY: it only waits; not for ever, should the test fail before it kills it.
                unsafe {
                    libc::alarm(120);
                    loop {
                        libc::pause();
                    }
                }
            }
            return Ok(pid.to_string());
        }
        other => panic!("unknown command {other}"),
    }
    Ok(String::new())
}
