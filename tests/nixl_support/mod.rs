//! What the tests with the real NIXL share: scenarios in processes of their own, peers in further
//! ones, and memory that a test can look into while a peer uses it.
//!
//! UCX reads its environment once, and a process that used NIXL must end with its own status. So a
//! scenario is a child process of the test, started from this same binary, and every scenario also
//! checks a clean exit.

#![allow(dead_code, unused_imports, unused_macros)] // each test binary uses a part

pub mod node;
mod python;

use std::collections::HashMap;
use std::fs::{File, OpenOptions};
use std::io::{BufRead, BufReader, Write};
use std::path::{Path, PathBuf};
use std::process::{Child, ChildStdin, Command, Stdio};
use std::sync::mpsc::{Receiver, TryRecvError, channel};
use std::time::{Duration, Instant};

use datatransport::backend::Direction;
use datatransport::error::Status;
use datatransport::region::{LocalRegion, Region};
use datatransport::transport::{BackendChoice, Completion, Config, NixlConfig, Transport, XferId};

pub use python::python;

/// Nothing here takes a tenth of it on an idle machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// UCX's own choice, or everything over sockets.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Tls {
    Default,
    Tcp,
}

/// The folder of NIXL's library, or a failure that says how to get it.
pub fn lib_dir() -> Option<PathBuf> {
    let dir = match std::env::var_os("DT_NIXL_LIB_DIR") {
        Some(dir) if !dir.is_empty() => PathBuf::from(dir),
        _ => Path::new(env!("CARGO_MANIFEST_DIR")).join("third_party/nixl/.nixl_cu12.mesonpy.libs"),
    };
    if dir.join("libnixl_capi.so").is_file() {
        return Some(dir);
    }
    if std::env::var("DT_TEST_NO_NIXL").as_deref() == Ok("1") {
        eprintln!(
            "SKIPPED, because DT_TEST_NO_NIXL=1 and there is no NIXL in {}",
            dir.display()
        );
        return None;
    }
    panic!(
        "there is no NIXL in {}: run scripts/nixl.sh, or set DT_NIXL_LIB_DIR, or DT_TEST_NO_NIXL=1 to do without",
        dir.display()
    );
}

/// What a scenario process left behind.
pub struct Outcome {
    pub stdout: String,
    pub stderr: String,
}

/// Runs scenario `name` of this binary in a process of its own, which must exit with 0.
pub fn run(name: &str, tls: Tls) -> Option<Outcome> {
    let dir = lib_dir()?;
    let mut command = role(name);
    command
        .env("DT_NIXL_LIB_DIR", dir)
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    if tls == Tls::Tcp {
        command.env("UCX_TLS", "tcp");
    }
    let output = command.output().expect("this binary can be started");
    let outcome = Outcome {
        stdout: String::from_utf8_lossy(&output.stdout).into_owned(),
        stderr: String::from_utf8_lossy(&output.stderr).into_owned(),
    };
    assert!(
        output.status.success(),
        "scenario {name} ({tls:?}): {}\n--- stdout\n{}\n--- stderr\n{}",
        output.status,
        outcome.stdout,
        outcome.stderr
    );
    Some(outcome)
}

/// This binary, as process of `role`.
fn role(role: &str) -> Command {
    let mut command = Command::new(std::env::current_exe().expect("this binary has a path"));
    command
        .args(["--exact", "process", "--nocapture", "--test-threads=1"])
        .env("DT_TEST_ROLE", role);
    command
}

/// The body of the test `process`: what a child process does. In the outer process: nothing.
pub fn process(scenarios: &[(&str, fn())]) {
    let Ok(name) = std::env::var("DT_TEST_ROLE") else {
        return;
    };
    match &*name {
        "peer" => return peer(),
        "node" => return node::node(),
        _ => {}
    }
    let (_, scenario) = scenarios
        .iter()
        .find(|(known, _)| *known == name)
        .unwrap_or_else(|| panic!("no scenario {name}"));
    scenario();
}

/// `test: scenario setting;` makes tests that run a scenario in a process of its own.
macro_rules! scenarios {
    ($($test:ident: $scenario:ident $tls:ident;)+) => {$(
        #[test]
        fn $test() {
            run(stringify!($scenario), Tls::$tls);
        }
    )+};
}
pub(crate) use scenarios;

/// Memory that several processes can map.
pub struct Memory {
    pub path: PathBuf,
    base: *mut u8,
    pub len: usize,
    owner: bool,
}

// SAFETY: it is a plain mapping; the tests look at bytes while others write them, volatile.
unsafe impl Send for Memory {}

impl Memory {
    /// New memory of zeros.
    pub fn new(len: usize) -> Memory {
        use std::sync::atomic::{AtomicU32, Ordering};
        static NEXT: AtomicU32 = AtomicU32::new(0);
        let next = NEXT.fetch_add(1, Ordering::Relaxed);
        let name = format!("dt-nixl-test-{}-{next}", std::process::id());
        let path = Path::new("/dev/shm").join(name);
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .create_new(true)
            .open(&path)
            .unwrap();
        file.set_len(len as u64).unwrap();
        Memory::map(path, &file, len, true)
    }

    /// Memory of another process.
    pub fn open(path: &Path, len: usize) -> Memory {
        let file = OpenOptions::new()
            .read(true)
            .write(true)
            .open(path)
            .unwrap();
        Memory::map(path.to_owned(), &file, len, false)
    }

    fn map(path: PathBuf, file: &File, len: usize, owner: bool) -> Memory {
        use rustix::mm::{MapFlags, ProtFlags, mmap};
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: a new mapping at an address that the kernel chooses.
        let base = unsafe {
            mmap(
                std::ptr::null_mut(),
                len,
                protection,
                MapFlags::SHARED,
                file,
                0,
            )
        };
        Memory {
            path,
            base: base.unwrap().cast(),
            len,
            owner,
        }
    }

    pub fn base(&self) -> u64 {
        self.base as u64
    }

    // Other processes write it at the same time: exclusive it is not, whatever the type says.
    #[allow(clippy::mut_from_ref)]
    pub fn bytes(&self) -> &mut [u8] {
        // SAFETY: the mapping lives as long as `self`; it is bytes, of which any value is valid.
        unsafe { std::slice::from_raw_parts_mut(self.base, self.len) }
    }

    #[allow(clippy::mut_from_ref)]
    pub fn block(&self, index: u32, len: usize) -> &mut [u8] {
        let start = index as usize * len;
        &mut self.bytes()[start..start + len]
    }

    /// Every block gets bytes that only this block and `seed` give.
    pub fn fill(&self, seed: u64, block_len: usize) {
        for (index, block) in self.bytes().chunks_mut(block_len).enumerate() {
            fill(block, seed, index as u32);
        }
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        if self.owner {
            let _ = std::fs::remove_file(&self.path);
        }
        // SAFETY: the mapping was made by `map` and is not used any more.
        let _ = unsafe { rustix::mm::munmap(self.base.cast(), self.len) };
    }
}

/// A generator whose words only this block and `seed` give.
struct Pattern(u64);

impl Pattern {
    fn new(seed: u64, index: u32) -> Pattern {
        let mixed = seed
            .wrapping_mul(0x9e37_79b9_7f4a_7c15)
            .wrapping_add(u64::from(index).wrapping_mul(0xd1b5_4a32_d192_ed03));
        Pattern(mixed | 1)
    }

    fn next(&mut self) -> u64 {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        self.0
    }
}

pub fn fill(block: &mut [u8], seed: u64, index: u32) {
    let mut words = Pattern::new(seed, index);
    for bytes in block.chunks_mut(8) {
        bytes.copy_from_slice(&words.next().to_le_bytes()[..bytes.len()]);
    }
}

/// Whether `block` holds what [`fill`] gives.
pub fn holds(block: &[u8], seed: u64, index: u32) -> bool {
    let mut expected = vec![0; block.len()];
    fill(&mut expected, seed, index);
    block == expected
}

pub fn is_zero(block: &[u8]) -> bool {
    block == vec![0; block.len()]
}

/// A permutation of `0..count`.
pub fn permutation(count: u32, seed: u64) -> Vec<u32> {
    let mut order: Vec<u32> = (0..count).collect();
    let mut random = Pattern::new(seed, 1);
    for at in (1..count as usize).rev() {
        order.swap(at, (random.next() >> 16) as usize % (at + 1));
    }
    order
}

/// A transport over `memory`.
pub fn transport(name: Option<&str>, memory: &Memory, block_len: usize) -> Transport {
    transport_with(name, memory, block_len, NixlConfig::default())
}

pub fn transport_with(
    name: Option<&str>,
    memory: &Memory,
    block_len: usize,
    nixl: NixlConfig,
) -> Transport {
    let blocks = (memory.len / block_len) as u64;
    let region = Region::new(memory.base(), blocks, block_len as u64).unwrap();
    Transport::create(Config {
        // SAFETY: a node drops its transport before its memory.
        region: unsafe { LocalRegion::new(region) },
        region_fd: None,
        backend: BackendChoice::Nixl,
        nixl,
        agent_name: name.map(str::to_owned),
        config_json: None,
        poll_budget: Duration::from_micros(500),
    })
    .unwrap_or_else(|error| panic!("{error}"))
}

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

    fn signal(&self, signal: rustix::process::Signal) {
        let pid = rustix::process::Pid::from_child(&self.child);
        rustix::process::kill_process(pid, signal).unwrap();
    }

    pub fn stop(&self) {
        self.signal(rustix::process::Signal::STOP);
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

impl Drop for Peer {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

fn rest(line: &str, word: &str) -> String {
    match line.split_once(' ') {
        Some((first, rest)) if first == word => rest.to_owned(),
        _ if line == word => String::new(),
        _ => panic!("the peer said {line:?} in place of {word:?}"),
    }
}

/// What a peer process does: its transport is driven until "exit".
fn peer() {
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

/// Polls until all of `ids` have surfaced; each must do so once.
pub fn finish(
    transport: &Transport,
    ids: &[XferId],
) -> HashMap<XferId, std::result::Result<(), Status>> {
    let start = Instant::now();
    let mut got = HashMap::new();
    while got.len() < ids.len() {
        assert!(
            start.elapsed() < PATIENCE,
            "{} of {} ended",
            got.len(),
            ids.len()
        );
        let left = PATIENCE.saturating_sub(start.elapsed());
        for completion in wait(transport, left) {
            assert!(
                ids.contains(&completion.id),
                "{completion:?} was not asked for"
            );
            let again = got.insert(completion.id, completion.result);
            assert!(again.is_none(), "{completion:?} surfaced twice");
        }
    }
    got
}

pub fn wait(transport: &Transport, timeout: Duration) -> Vec<Completion> {
    let mut got = Vec::new();
    transport
        .wait(None, 64, timeout, &mut |completion| got.push(completion))
        .unwrap();
    got
}

pub fn poll(transport: &Transport) -> Vec<Completion> {
    let mut got = Vec::new();
    transport
        .poll(None, 64, &mut |completion| got.push(completion))
        .unwrap();
    got
}

/// Polls until `condition` holds.
pub fn poll_until(transport: &Transport, what: &str, mut condition: impl FnMut() -> bool) {
    let start = Instant::now();
    while !condition() {
        assert!(start.elapsed() < PATIENCE, "waited in vain for: {what}");
        assert!(poll(transport).is_empty(), "something ended before: {what}");
    }
}

pub fn write(transport: &Transport, id: &str, local: &[u32], remote: &[u32]) -> XferId {
    transport
        .submit(Direction::Write, id, local, remote, 7)
        .unwrap_or_else(|error| panic!("{error}"))
}

pub fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn unhex(text: &str) -> Vec<u8> {
    (0..text.len())
        .step_by(2)
        .map(|at| u8::from_str_radix(&text[at..at + 2], 16).unwrap())
        .collect()
}
