//! Peers in processes of their own.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::Duration;

use datatransport::backend::{Direction, Message};
use datatransport::transport::{NixlConfig, Transport};

use super::*;

/// A process with a transport of its own, driven by commands on its standard input.
pub struct Peer {
    child: Child,
    commands: ChildStdin,
    lines: Receiver<String>,
    /// Its memory, mapped here too.
    pub memory: Memory,
    pub block_len: usize,
    pub metadata: Vec<u8>,
    /// Where its memory lies in its own addresses.
    pub base: u64,
}

impl Peer {
    pub fn start(name: &str, blocks: usize, block_len: usize) -> Peer {
        Peer::start_with(name, blocks, block_len, &[])
    }

    pub fn start_with(name: &str, blocks: usize, block_len: usize, env: &[(&str, &str)]) -> Peer {
        let memory = Memory::new(blocks * block_len);
        Peer::over(name, memory, block_len, env)
    }

    /// A peer over memory that may be an earlier peer's.
    pub fn over(name: &str, memory: Memory, block_len: usize, env: &[(&str, &str)]) -> Peer {
        let mut command = role("peer");
        command
            .env("DT_TEST_PEER_NAME", name)
            .env("DT_TEST_PEER_MEMORY", &memory.path)
            .env("DT_TEST_PEER_BYTES", memory.len.to_string())
            .env("DT_TEST_PEER_BLOCK", block_len.to_string())
            .envs(env.iter().copied());
        Peer::spawn(command, memory, block_len)
    }

    /// Any process that speaks the same few lines.
    pub fn spawn(mut command: Command, memory: Memory, block_len: usize) -> Peer {
        // UCX does not mark its sockets. With copies of them in another process, a peer of this one
        // would not notice that they have been closed.
        let keep_nothing = || {
            let flags = libc::CLOSE_RANGE_CLOEXEC as libc::c_int;
            // SAFETY: a system call on numbers.
            match unsafe { libc::close_range(3, libc::c_uint::MAX, flags) } {
                0 => Ok(()),
                _ => Err(std::io::Error::last_os_error()),
            }
        };
        // SAFETY: the closure does nothing that may not be done between fork and exec.
        unsafe { command.pre_exec(keep_nothing) };
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap_or_else(|error| panic!("{command:?}: {error}"));
        let commands = child.stdin.take().unwrap();
        let stdout = BufReader::new(child.stdout.take().unwrap());
        let (sender, lines) = channel();
        std::thread::spawn(move || {
            for line in stdout.lines().map_while(|line| line.ok()) {
                // libtest writes the test's name in front of the first line.
                if let Some(at) = line.find('@')
                    && sender.send(line[at + 1..].to_owned()).is_err()
                {
                    break;
                }
            }
        });
        let mut peer = Peer {
            child,
            commands,
            lines,
            memory,
            block_len,
            metadata: Vec::new(),
            base: 0,
        };
        peer.metadata = unhex(&peer.expect("metadata"));
        peer.base = peer.expect("base").parse().unwrap();
        peer
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn blocks(&self) -> u64 {
        (self.memory.len / self.block_len) as u64
    }

    pub fn tell(&mut self, command: &str) {
        writeln!(self.commands, "{command}").expect("the peer listens");
    }

    /// The rest of the next line, which starts with `word`.
    pub fn expect(&mut self, word: &str) -> String {
        let line = self.lines.recv_timeout(PATIENCE);
        let line = line.unwrap_or_else(|_| panic!("the peer did not say {word:?}"));
        rest(&line, word)
    }

    /// The same, if there is a line already.
    pub fn said(&mut self, word: &str) -> Option<String> {
        let line = self.lines.try_recv().ok()?;
        Some(rest(&line, word))
    }

    /// The messages that have come to it since it was asked last.
    pub fn messages(&mut self) -> Vec<Vec<u8>> {
        self.tell("messages");
        self.expect("messages")
            .split_whitespace()
            .map(unhex)
            .collect()
    }

    /// From now on it drives its transport for `millis` in each round; 0: not at all.
    pub fn drive(&mut self, millis: u32) {
        self.tell(&format!("drive {millis}"));
        self.expect("driving");
    }

    pub fn add_to(&self, transport: &Transport, id: &str) {
        self.try_add_to(transport, id)
            .unwrap_or_else(|error| panic!("{error}"));
    }

    pub fn try_add_to(&self, transport: &Transport, id: &str) -> datatransport::error::Result<()> {
        transport.add_peer(
            id,
            &self.metadata,
            self.base,
            self.blocks(),
            self.block_len as u64,
        )
    }

    /// Its first blocks, for a transport whose region has a tiny geometry of 16 blocks of 4 KiB.
    pub fn add_to_small(&self, transport: &Transport, id: &str) {
        transport
            .add_peer(id, &self.metadata, self.base, 16, 4096)
            .unwrap_or_else(|error| panic!("{error}"));
    }

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    /// Stops it. The signal alone lets it run on for a moment.
    pub fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
        let start = Instant::now();
        while !self.is_stopped() {
            assert!(start.elapsed() < PATIENCE, "it does not stop");
            std::thread::yield_now();
        }
    }

    fn is_stopped(&self) -> bool {
        let tasks = std::fs::read_dir(format!("/proc/{}/task", self.pid())).unwrap();
        tasks.map(|task| task.unwrap().path()).all(|task| {
            // A thread may have ended meanwhile. Its name, in parentheses, may hold anything.
            let stat = std::fs::read_to_string(task.join("stat")).unwrap_or_default();
            stat.rsplit_once(')')
                .is_none_or(|(_, rest)| rest.trim_start().starts_with('T'))
        })
    }

    pub fn cont(&self) {
        self.signal(rustix::process::Signal::CONT);
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    /// Ends it in good order.
    pub fn finish(mut self) {
        self.tell("exit");
        let status = self.child.wait().unwrap();
        assert!(status.success(), "the peer ended with {status}");
    }
}

fn rest(line: &str, word: &str) -> String {
    match line.split_once(' ') {
        Some((first, rest)) if first == word => rest.to_owned(),
        _ if line == word => String::new(),
        _ => panic!("the peer said {line:?} in place of {word:?}"),
    }
}

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

/// What a peer process does: its transport is driven until "exit".
pub fn serve() {
    if std::env::var_os("DT_TEST_PEER_FOLLOWS").is_some() {
        // Stopped as it may be: otherwise nobody learns that who started it has crashed.
        let death = Some(rustix::process::Signal::KILL);
        rustix::process::set_parent_process_death_signal(death).unwrap();
    }
    let text = |name: &str| std::env::var(name).unwrap_or_else(|_| panic!("no ${name}"));
    let number = |name: &str| text(name).parse::<usize>().unwrap();
    let block_len = number("DT_TEST_PEER_BLOCK");
    let memory = Memory::open(
        Path::new(&text("DT_TEST_PEER_MEMORY")),
        number("DT_TEST_PEER_BYTES"),
    );
    let name = text("DT_TEST_PEER_NAME");
    let nixl = NixlConfig {
        progress_thread: std::env::var_os("DT_TEST_PEER_THREAD").is_some(),
        ..NixlConfig::default()
    };
    let transport = transport_with(Some(&name), &memory, block_len, nixl);
    println!("@metadata {}", hex(&transport.agent_metadata().unwrap()));
    println!("@base {}", memory.base());

    let (sender, commands) = channel();
    std::thread::spawn(move || {
        for line in std::io::stdin().lines().map_while(|line| line.ok()) {
            if sender.send(line).is_err() {
                break;
            }
        }
    });
    // How long this side drives its transport in each round; 0 while it plays dead.
    let mut driving = Duration::from_millis(2);
    loop {
        if driving.is_zero() {
            std::thread::sleep(Duration::from_millis(2));
        } else {
            let _ = transport.wait(None, 0, driving, &mut |_| {});
        }
        let line = match commands.try_recv() {
            Ok(line) => line,
            Err(TryRecvError::Empty) => continue,
            // Whoever started it is gone.
            Err(TryRecvError::Disconnected) => return,
        };
        let words: Vec<&str> = line.split(' ').collect();
        match words[..] {
            ["exit"] => break,
            ["drive", millis] => {
                driving = Duration::from_millis(millis.parse().unwrap());
                println!("@driving");
            }
            ["add", metadata, base, blocks] => {
                let (base, blocks) = (base.parse().unwrap(), blocks.parse().unwrap());
                transport
                    .add_peer("a", &unhex(metadata), base, blocks, block_len as u64)
                    .unwrap_or_else(|error| panic!("{error}"));
                println!("@added");
            }
            // Copies all of this side's blocks to the same places over there.
            ["push", count] => {
                let all: Vec<u32> = (0..count.parse().unwrap()).collect();
                let id = transport
                    .submit(Direction::Write, "a", &all, &all, 0)
                    .unwrap();
                assert_eq!(finish(&transport, &[id])[&id], Ok(()));
                println!("@pushed");
            }
            // The other way, whatever comes of it.
            ["pull", count] => {
                let all: Vec<u32> = (0..count.parse().unwrap()).collect();
                let id = transport
                    .submit(Direction::Read, "a", &all, &all, 0)
                    .unwrap();
                println!("@pulled {:?}", finish(&transport, &[id])[&id]);
            }
            ["send", message] => {
                let message = unhex(message);
                while let Err(error) = transport.send("a", &message) {
                    assert_eq!(error.status, Status::Busy, "{error}");
                    let _ = transport.poll(None, 0, &mut |_| {});
                }
                println!("@sent");
            }
            // What has come since the last time.
            ["messages"] => {
                let mut line = String::from("@messages");
                let mut take = |message: &Message| {
                    line.push(' ');
                    line.push_str(&hex(&message.bytes));
                    true
                };
                transport.receive(1000, &mut take).unwrap();
                println!("{line}");
            }
            ["close"] => {
                transport.close(PATIENCE).unwrap();
                driving = Duration::ZERO;
                println!("@closed");
            }
            _ => panic!("what is {line:?}?"),
        }
    }
    transport.close(PATIENCE).unwrap();
}
