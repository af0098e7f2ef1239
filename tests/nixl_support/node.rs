//! A backend without a transport around it, in this process or in one of its own.

use std::sync::mpsc::{TryRecvError, channel};
use std::time::{Duration, Instant};

use datatransport::backend::nixl::Nixl;
use datatransport::backend::{Backend, ConnId, Direction, Event, Message, OpId, Start};
use datatransport::error::{Result, Status};
use datatransport::extents::Runs;
use datatransport::layout::Layout;

use super::*;

pub const BLOCK: usize = 4096;
pub const BLOCKS: usize = 64;

/// Who has a NIXL backend of its own.
pub struct Node {
    pub backend: Box<dyn Backend>,
    pub memory: Memory,
    last: u64,
}

impl Node {
    pub fn new(name: &str) -> Node {
        Node::with(name, Memory::new(BLOCKS * BLOCK), NixlConfig::default())
    }

    pub fn with(name: &str, memory: Memory, config: NixlConfig) -> Node {
        let region = Region::new(memory.base(), BLOCKS as u64, BLOCK as u64).unwrap();
        // SAFETY: the backend is closed before the memory goes.
        let region = unsafe { LocalRegion::new(region) };
        let backend = Nixl::create(region, &config, name).unwrap_or_else(|error| panic!("{error}"));
        let last = 0;
        Node {
            backend,
            memory,
            last,
        }
    }

    pub fn connect(&mut self, metadata: &[u8], base: u64) -> ConnId {
        self.last += 1;
        let conn = ConnId(self.last);
        let remote = Region::new(base, BLOCKS as u64, BLOCK as u64).unwrap();
        self.backend
            .connect(conn, metadata, &Layout::from(remote), None)
            .unwrap_or_else(|error| panic!("{error}"));
        conn
    }

    pub fn connect_to(&mut self, other: &Node) -> ConnId {
        self.connect(other.backend.metadata(), other.memory.base())
    }

    pub fn progress(&mut self) -> Vec<Event> {
        let mut events = Vec::new();
        let deadline = Instant::now() + Duration::from_micros(500);
        self.backend.progress(deadline, &mut events);
        events
    }

    /// Drives until the message is taken, or refused for good. Others may need driving too.
    pub fn send(&mut self, conn: ConnId, message: &[u8], mut others: impl FnMut()) -> Result<()> {
        let start = Instant::now();
        loop {
            match self.backend.send(conn, message) {
                Err(error) if error.status == Status::Busy => {
                    assert!(start.elapsed() < PATIENCE, "{error}");
                    others();
                    let events = self.progress();
                    let lost = |event: &Event| matches!(event, Event::Lost { .. });
                    assert!(events.iter().all(lost), "{events:?}");
                }
                other => return other,
            }
        }
    }

    /// Writes the first `count` blocks to the same places over there.
    pub fn push(&mut self, conn: ConnId, base: u64, count: u32) {
        self.last += 1;
        let op = OpId(self.last);
        let all: Vec<u32> = (0..count).collect();
        let local = Region::new(self.memory.base(), BLOCKS as u64, BLOCK as u64).unwrap();
        let remote = Region::new(base, BLOCKS as u64, BLOCK as u64).unwrap();
        let mut runs = Runs::of(&all, &all, &local, &remote.into()).unwrap();
        let started = self.backend.start(conn, op, Direction::Write, &mut runs);
        if started.unwrap() == Start::Done {
            return;
        }
        let start = Instant::now();
        let ended = Event::Ended { op, result: Ok(()) };
        loop {
            match &self.progress()[..] {
                [] => assert!(start.elapsed() < PATIENCE, "a write does not end"),
                [event] if *event == ended => return,
                events => panic!("{events:?}"),
            }
        }
    }

    /// All that is there now.
    pub fn received(&mut self) -> Vec<Message> {
        self.progress();
        let mut messages = Vec::new();
        self.backend.receive(usize::MAX, &mut messages);
        messages
    }

    /// Drives until `count` messages have come.
    pub fn receive(&mut self, count: usize) -> Vec<Message> {
        let start = Instant::now();
        let mut messages = Vec::new();
        while messages.len() < count {
            let got = messages.len();
            assert!(start.elapsed() < PATIENCE, "{got} of {count} messages came");
            messages.extend(self.received());
        }
        assert_eq!(messages.len(), count);
        messages
    }

    pub fn close(&mut self) {
        let start = Instant::now();
        while let Err(error) = self.backend.try_close() {
            assert_eq!(error.status, Status::Timeout, "{error}");
            assert!(start.elapsed() < PATIENCE, "{error}");
            std::thread::sleep(Duration::from_micros(100));
        }
    }
}

impl Drop for Node {
    fn drop(&mut self) {
        self.backend.force_close();
    }
}

/// Message `n` of sender `seed`: of 8 to `most` bytes, small ones as often as large ones.
pub fn numbered(seed: u64, n: u64, most: usize) -> Vec<u8> {
    let mut random = [0; 16];
    fill(&mut random, seed, n as u32);
    let word = |at: usize| u64::from_le_bytes(random[at..at + 8].try_into().unwrap()) >> 8;
    let limit = (most as u64 >> (word(0) % u64::from((most / 8).ilog2().max(1)))).max(9);
    let mut message = vec![0; 8 + (word(8) % (limit - 7)) as usize];
    fill(&mut message[8..], seed, n as u32);
    message[..8].copy_from_slice(&n.to_le_bytes());
    message
}

/// Checks that these are the numbered messages of senders called by their seeds, each from its first
/// on, in order and without a gap. How many of each.
pub fn check_numbered(messages: &[Message], most: usize) -> String {
    let mut counts = std::collections::BTreeMap::new();
    for message in messages {
        let seed: u64 = message.sender.parse().unwrap();
        let count = counts.entry(seed).or_insert(0);
        assert!(
            message.bytes == numbered(seed, *count, most),
            "in place of message {count} of {seed} came {} bytes, number {:?}",
            message.bytes.len(),
            message.bytes.get(..8)
        );
        *count += 1;
    }
    let texts: Vec<String> = counts
        .iter()
        .map(|(seed, n)| format!("{seed}={n}"))
        .collect();
    texts.join(" ")
}

/// A process with a node, driven by commands on its standard input.
pub fn start(name: &str, threads: u32, progress_thread: bool) -> Peer {
    let memory = Memory::new(BLOCKS * BLOCK);
    let mut command = role("node");
    command
        .env("DT_TEST_PEER_NAME", name)
        .env("DT_TEST_PEER_MEMORY", &memory.path)
        .env("DT_TEST_PEER_THREADS", threads.to_string())
        .env("DT_TEST_PEER_THREAD", u8::from(progress_thread).to_string());
    Peer::spawn(command, memory, BLOCK)
}

/// What such a process does until "exit".
pub(super) fn node() {
    let text = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("no ${name}"));
    let memory = Memory::open(Path::new(&text("DT_TEST_PEER_MEMORY")), BLOCKS * BLOCK);
    let config = NixlConfig {
        num_threads: text("DT_TEST_PEER_THREADS").parse().unwrap(),
        progress_thread: text("DT_TEST_PEER_THREAD") == "1",
        ..NixlConfig::default()
    };
    let mut node = Node::with(&text("DT_TEST_PEER_NAME"), memory, config);
    println!("@metadata {}", hex(node.backend.metadata()));
    println!("@base {}", node.memory.base());
    let (sender, commands) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(|line| line.ok()) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    let mut driving = true;
    let mut kept = Vec::new();
    let (mut conn, mut base) = (ConnId(0), 0);
    loop {
        if driving {
            node.progress();
        }
        let line = match commands.try_recv() {
            Ok(line) => line,
            Err(TryRecvError::Empty) => {
                std::thread::sleep(Duration::from_micros(200));
                continue;
            }
            Err(TryRecvError::Disconnected) => return,
        };
        let words: Vec<&str> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().unwrap();
        match words[0] {
            "exit" => break,
            "drive" => {
                driving = words[1] != "0";
                println!("@driving");
            }
            "connect" => {
                base = number(2);
                conn = node.connect(&unhex(words[1]), base);
                println!("@connected");
            }
            // Until it is taken, and then nothing more is called, if `drive` said so.
            "send" => {
                node.send(conn, &unhex(words[1]), || {}).unwrap();
                println!("@sent");
            }
            // Messages `from..to` of a seed, with a write of some blocks now and then.
            "send_numbered" => {
                let (seed, from, to, most) = (number(1), number(2), number(3), number(4));
                for n in from..to {
                    let message = numbered(seed, n, most as usize);
                    node.send(conn, &message, || {}).unwrap();
                    if n % 50 == 49 && words[5] == "writes" {
                        node.push(conn, base, BLOCKS as u32 / 2);
                    }
                }
                println!("@sent");
            }
            // As many as are taken at once, without driving.
            "burst" => {
                let (seed, from, to, most) = (number(1), number(2), number(3), number(4));
                let mut failure = None;
                let mut sent = 0;
                for n in from..to {
                    if let Err(error) = node.backend.send(conn, &numbered(seed, n, most as usize)) {
                        failure = Some(error.status);
                        break;
                    }
                    sent += 1;
                }
                println!("@burst {sent} {failure:?}");
            }
            // Until so many have come since it began.
            "receive_numbered" => {
                let missing = number(1) as usize - kept.len();
                kept.extend(node.receive(missing));
                println!("@numbered {}", check_numbered(&kept, number(2) as usize));
            }
            "close" => {
                node.close();
                driving = false;
                println!("@closed");
            }
            "die" => rustix::process::kill_process(
                rustix::process::getpid(),
                rustix::process::Signal::KILL,
            )
            .unwrap(),
            _ => panic!("what is {line:?}?"),
        }
    }
    node.close();
}
