//! What the tests with the real NIXL share: scenarios in processes of their own, peers in further
//! ones, and memory that a test can look into while a peer uses it.
//!
//! UCX reads its environment once, and a process that used NIXL must end with its own status. So a
//! scenario is a child process of the test, started from this same binary, and every scenario also
//! checks a clean exit.

#![allow(dead_code, unused_imports, unused_macros)] // each test binary uses a part

mod library;
mod log;
mod memory;
pub mod node;
mod peer;
mod proxy;
mod python;
mod world;

use std::collections::HashMap;
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use datatransport::backend::Direction;
use datatransport::error::{Error, Status};
use datatransport::region::{LocalRegion, Region};
use datatransport::transport::{BackendChoice, Completion, Config, NixlConfig, Transport, XferId};

pub use library::*;
pub use log::*;
pub use memory::*;
pub use peer::*;
pub use proxy::*;
pub use python::python;
pub use world::*;

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
        tell(&format!(
            "SKIPPED, because DT_TEST_NO_NIXL=1 and there is no NIXL in {}",
            dir.display()
        ));
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
    run_with(name, tls, &[])
}

/// The same, with more in its environment.
pub fn run_with(name: &str, tls: Tls, env: &[(&str, &str)]) -> Option<Outcome> {
    let dir = lib_dir()?;
    let mut command = role(name);
    command
        .env("DT_NIXL_LIB_DIR", dir)
        .envs(env.iter().copied())
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
    for line in outcome.stderr.lines() {
        if line.starts_with("SKIPPED") {
            tell(&format!("{line} ({name})"));
        }
    }
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
        "peer" => return peer::serve(),
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
    transport_of(BackendChoice::Nixl, name, memory, block_len, nixl)
}

pub fn transport_of(
    backend: BackendChoice,
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
        backend,
        nixl,
        agent_name: name.map(str::to_owned),
        config_json: None,
        poll_budget: Duration::from_micros(500),
    })
    .unwrap_or_else(|error| panic!("{error}"))
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

pub fn all(count: u32) -> Vec<u32> {
    (0..count).collect()
}

/// The peer answers only when this side moves, too.
pub fn expect_while_polling(transport: &Transport, peer: &mut Peer, word: &str) {
    std::thread::scope(|scope| {
        let answer = scope.spawn(|| peer.expect(word));
        while !answer.is_finished() {
            assert!(wait(transport, Duration::from_millis(1)).is_empty());
        }
        answer.join().unwrap();
    });
}

/// Adds `peer` by other metadata than its own.
pub fn try_add(transport: &Transport, id: &str, metadata: &[u8], peer: &Peer) -> Result<(), Error> {
    transport.add_peer(
        id,
        metadata,
        peer.base,
        peer.blocks(),
        peer.block_len as u64,
    )
}

/// A test that cannot run says so; where everything must be there, that is a failure.
pub fn skip<T>(why: String) -> Option<T> {
    assert!(std::env::var_os("CI").is_none(), "{why}");
    tell(&format!("SKIPPED: {why}"));
    None
}

/// A line on stderr, past what the test harness keeps to itself.
fn tell(line: &str) {
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("{line}\n"));
}
