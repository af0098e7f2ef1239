//! What NIXL does to the process that embeds it, and what a peer's metadata can do to it.

mod nixl_support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use datatransport::error::{Error, Status};
use datatransport::region::{LocalRegion, Region};
use datatransport::transport::{BackendChoice, Config, NixlConfig, Transport};
use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[
    ("leaves_the_process_alone", leaves_the_process_alone),
    ("prints_nothing", prints_nothing),
    ("idle_costs_little", idle_costs_little),
    ("hostile_metadata", hostile_metadata),
    ("own_name_and_wrapped_ranges", own_name_and_wrapped_ranges),
    ("bent_library", bent_library),
    ("no_library", no_library),
    ("no_failure_detection", no_failure_detection),
    ("many_transports", many_transports),
    ("peers_leave_nothing_behind", peers_leave_nothing_behind),
];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios! {
    leaves_the_process_alone_default: leaves_the_process_alone Default;
    idle_costs_little_default: idle_costs_little Default;
    idle_costs_little_tcp: idle_costs_little Tcp;
    hostile_metadata_default: hostile_metadata Default;
    hostile_metadata_tcp: hostile_metadata Tcp;
    own_name_and_wrapped_ranges_default: own_name_and_wrapped_ranges Default;
    own_name_and_wrapped_ranges_tcp: own_name_and_wrapped_ranges Tcp;
    no_failure_detection_default: no_failure_detection Default;
    many_transports_default: many_transports Default;
    peers_leave_nothing_behind_default: peers_leave_nothing_behind Default;
    peers_leave_nothing_behind_tcp: peers_leave_nothing_behind Tcp;
    bent_library_default: bent_library Default;
    no_library_default: no_library Default;
}

const BLOCK: usize = 4096;

fn disposition(signal: i32) -> Option<(usize, i32)> {
    // SAFETY: a zeroed sigaction is a valid one, and the call only writes it.
    unsafe {
        let mut action: libc::sigaction = std::mem::zeroed();
        (libc::sigaction(signal, std::ptr::null(), &mut action) == 0)
            .then_some((action.sa_sigaction, action.sa_flags))
    }
}

fn leaves_the_process_alone() {
    extern "C" fn own_handler(_: i32) {}
    let handler: extern "C" fn(i32) = own_handler;
    // SAFETY: the handler does nothing.
    unsafe { libc::signal(libc::SIGHUP, handler as usize) };
    let signals = || (1..=libc::SIGRTMAX()).map(disposition).collect::<Vec<_>>();
    let environment = || std::env::vars_os().collect::<Vec<_>>();
    let before = (signals(), environment());
    let memory = Memory::new(16 * BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    assert_eq!(before, (signals(), environment()));
    let peer = Peer::start("b", 16, BLOCK);
    peer.add_to(&transport, "b");
    let id = write(&transport, "b", &[0], &[0]);
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    transport.close(PATIENCE).unwrap();
    drop(transport);
    assert_eq!(before, (signals(), environment()));
    peer.finish();
}

#[test]
fn prints_nothing_default() {
    let Some(outcome) = run("prints_nothing", Tls::Default) else {
        return;
    };
    assert_eq!(outcome.stderr, "");
    let start = outcome.stdout.find("@start").expect("its own marks");
    let end = outcome.stdout.find("@end").expect("its own marks");
    assert_eq!(&outcome.stdout[start..end], "@start\n");
}

fn prints_nothing() {
    println!("@start");
    let memory = Memory::new(16 * BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    let peer = Peer::start("b", 16, BLOCK);
    peer.add_to(&transport, "b");
    let id = write(&transport, "b", &[0], &[0]);
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    transport.remove_peer("b").unwrap();
    transport.close(PATIENCE).unwrap();
    drop(transport);
    println!("@end");
    peer.finish();
}

/// Processor time of this process.
fn cpu() -> Duration {
    // SAFETY: a zeroed rusage is a valid one, and the call only writes it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut usage), 0);
        usage
    };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    time(usage.ru_utime) + time(usage.ru_stime)
}

fn idle_costs_little() {
    let memory = Memory::new(16 * BLOCK);
    for progress_thread in [false, true] {
        let config = NixlConfig {
            progress_thread,
            ..NixlConfig::default()
        };
        let transport = transport_with(Some("a"), &memory, BLOCK, config);
        let peer = Peer::start("b", 16, BLOCK);
        peer.add_to(&transport, "b");
        let id = write(&transport, "b", &[0], &[0]);
        assert_eq!(finish(&transport, &[id])[&id], Ok(()));
        // The first second after some work is not idle time.
        assert!(wait(&transport, Duration::from_millis(1200)).is_empty());
        let span = Duration::from_secs(3);
        let share = |what: &str, idle: &dyn Fn()| {
            let before = cpu();
            idle();
            let share = (cpu() - before).as_secs_f64() / span.as_secs_f64();
            println!(
                "progress thread {progress_thread}, {what}: {:.2} % of a core",
                share * 100.0
            );
            // Its aim is 2 %; a busy machine makes wake-ups dearer.
            assert!(share < 0.06, "{what}: {share}");
        };
        share("no calls", &|| std::thread::sleep(span));
        share("waiting", &|| {
            assert!(wait(&transport, span).is_empty());
        });
        transport.close(PATIENCE).unwrap();
        peer.finish();
    }
}

fn try_add(transport: &Transport, id: &str, metadata: &[u8], peer: &Peer) -> Result<(), Error> {
    transport.add_peer(id, metadata, peer.base, peer.blocks(), BLOCK as u64)
}

/// All that the tests of NIXL itself found to end the process or to spoil a name, on real metadata.
fn hostile_metadata() {
    let memory = Memory::new(64 * BLOCK);
    memory.fill(1, BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    let peer = Peer::start("b", 64, BLOCK);
    let honest = &peer.metadata;
    let find = |what: &[u8]| {
        honest
            .windows(what.len())
            .rposition(|window| window == what)
            .expect("real metadata has it")
    };
    // All bytes but those of the worker address, which nobody here can judge.
    let address = find(b"|t\x03\0\0\0\0\0\0\0UCX|c") + 23;
    let end_of_address = find(b"|\x0a\0\0\0\0\0\0\0MemSection");
    let memory_type = find(b"|t\x04\0\0\0\0\0\0\0") + 10;
    let (mut taken, mut refused) = (0, 0);
    for at in (0..honest.len()).filter(|at| !(address..end_of_address).contains(at)) {
        for flip in [1u8, 0x80, 0xff] {
            let mut bent = honest.clone();
            bent[at] ^= flip;
            match try_add(&transport, "bent", &bent, &peer) {
                // Another name, a longer region, an unused bit: NIXL's own check is no better.
                Ok(()) => {
                    taken += 1;
                    assert!(!(memory_type..memory_type + 4).contains(&at), "memory type");
                    transport.remove_peer("bent").unwrap();
                }
                Err(error) => {
                    refused += 1;
                    let expected = [Status::InvalidArg, Status::Incompatible];
                    assert!(expected.contains(&error.status), "byte {at}: {error}");
                }
            }
        }
    }
    for len in 0..honest.len() {
        assert!(try_add(&transport, "bent", &honest[..len], &peer).is_err());
    }
    let mut trailing = honest.clone();
    trailing.extend_from_slice(b"Agent\x01\0\0\0\0\0\0\0x|");
    assert!(try_add(&transport, "bent", &trailing, &peer).is_err());
    println!("{taken} taken, {refused} refused");
    assert!(refused > taken);

    // An address whose lengths lie is refused; one that merely leads nowhere costs nothing.
    let mut nowhere = 0;
    for at in address..end_of_address {
        for flip in [1u8, 0x20, 0x80, 0xff] {
            let mut bent = honest.clone();
            bent[at] ^= flip;
            if try_add(&transport, "bent", &bent, &peer).is_ok() {
                nowhere += 1;
                transport.remove_peer("bent").unwrap();
            }
        }
        // Cut in the middle, with all records in good order.
        let mut cut = honest[..address - 8].to_vec();
        cut.extend_from_slice(&((at - address) as u64).to_le_bytes());
        cut.extend_from_slice(&honest[address..at]);
        cut.extend_from_slice(&honest[end_of_address..]);
        assert!(
            try_add(&transport, "bent", &cut, &peer).is_err(),
            "cut at {at}"
        );
    }
    println!("{nowhere} addresses taken");

    // After all that the honest agent of the same name is welcome.
    peer.add_to(&transport, "b");
    let id = write(&transport, "b", &[1, 2, 3], &[3, 2, 1]);
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    assert!(holds(peer.memory.block(3, BLOCK), 1, 1));
    transport.close(PATIENCE).unwrap();
    peer.finish();
}

fn own_name_and_wrapped_ranges() {
    let memory = Memory::new(64 * BLOCK);
    memory.fill(1, BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    let own = transport.agent_metadata().unwrap();
    let error = transport
        .add_peer("self", &own, memory.base(), 64, BLOCK as u64)
        .unwrap_err();
    assert_eq!(error.status, Status::InvalidArg, "{error}");
    let namesake = Peer::start("a", 64, BLOCK);
    let error = namesake.try_add_to(&transport, "x").unwrap_err();
    assert_eq!(error.status, Status::InvalidArg, "{error}");

    let peer = Peer::start("b", 64, BLOCK);
    let block = BLOCK as u64;
    let add = |base: u64, blocks: u64| transport.add_peer("b", &peer.metadata, base, blocks, block);
    for (base, blocks, expected) in [
        (u64::MAX - block + 1, 1, Status::InvalidArg),
        (u64::MAX - block, 1, Status::Incompatible),
        (peer.base, 65, Status::Incompatible),
        (peer.base - 1, 64, Status::Incompatible),
        (peer.base + 1, 64, Status::Incompatible),
        (peer.base, u64::MAX / block, Status::InvalidArg),
        (1 << 40, 1, Status::Incompatible),
    ] {
        let error = add(base, blocks).unwrap_err();
        assert_eq!(error.status, expected, "{base:#x} {blocks}: {error}");
    }
    // A region that claims to end where addresses end.
    let len = (64 * block).to_le_bytes();
    let at = peer
        .metadata
        .windows(8)
        .rposition(|window| window == len)
        .unwrap();
    for (base, len) in [
        (u64::MAX - block + 1, block),
        (u64::MAX - 1, 2),
        (peer.base, u64::MAX),
    ] {
        let mut bent = peer.metadata.clone();
        bent[at - 8..at].copy_from_slice(&base.to_le_bytes());
        bent[at..at + 8].copy_from_slice(&len.to_le_bytes());
        let error = try_add(&transport, "b", &bent, &peer).unwrap_err();
        assert_eq!(error.status, Status::InvalidArg, "{error}");
    }
    // A part of the peer's region, unaligned, is a region too.
    add(peer.base + 13, 3).unwrap();
    let id = write(&transport, "b", &[5], &[2]);
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    let start = 13 + 2 * BLOCK;
    assert!(holds(&peer.memory.bytes()[start..start + BLOCK], 1, 5));
    transport.close(PATIENCE).unwrap();
    peer.finish();
    namesake.finish();
}

fn create(backend: BackendChoice, nixl: NixlConfig) -> Result<Transport, Error> {
    let memory = Box::leak(vec![0u8; 16 * BLOCK].into_boxed_slice());
    Transport::create(Config {
        // SAFETY: the memory outlives the transport.
        region: unsafe {
            LocalRegion::new(Region::new(memory.as_ptr() as u64, 16, BLOCK as u64).unwrap())
        },
        region_fd: None,
        backend,
        nixl,
        agent_name: None,
        config_json: None,
        poll_budget: Duration::from_micros(500),
    })
}

fn in_dir(dir: &Path) -> NixlConfig {
    NixlConfig {
        lib_dir: Some(dir.to_str().unwrap().into()),
        ..NixlConfig::default()
    }
}

fn unavailable(config: NixlConfig, words: &[&str]) {
    let error = create(BackendChoice::Nixl, config)
        .err()
        .expect("it was taken");
    assert_eq!(error.status, Status::Unavailable, "{error}");
    for word in words {
        assert!(error.message.contains(word), "no {word:?} in: {error}");
    }
}

/// A folder that is gone when the test is.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("dt-nixl-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// A shared library of this C text.
    fn compile(&self, file: &str, text: &str, soname: &str) {
        let source = self.0.join("source.c");
        std::fs::write(&source, text).unwrap();
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(self.0.join(file))
            .arg(&source)
            .arg(format!("-Wl,-soname,{soname}"))
            .status()
            .expect("cc is there, for nixl-sys needs it");
        assert!(status.success());
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Libraries that are not what they should be: a sentence each, and then the right one still loads.
fn bent_library() {
    let name = "libnixl_capi.so";
    let folder = Folder::new("bent");
    unavailable(
        in_dir(&folder.0.join("nowhere")),
        &["nowhere", "nixl_lib_dir"],
    );
    std::fs::write(folder.0.join(name), "no library").unwrap();
    unavailable(in_dir(&folder.0), &[name, "cannot be loaded"]);
    std::fs::remove_file(folder.0.join(name)).unwrap();
    folder.compile(name, "int nixl_capi_create_agent(void) { return 0; }", name);
    unavailable(in_dir(&folder.0), &["lacks 38 of the 38", "too old"]);

    let real = lib_dir().unwrap();
    let twins = Folder::new("plugins");
    std::fs::create_dir(twins.0.join("plugins")).unwrap();
    // NIXL itself loads, but its plugin asks for a library that is not there.
    folder.compile(
        "libmissing.so",
        "int missing(void) { return 0; }",
        "libmissing_dt.so",
    );
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wl,--no-as-needed", "-o"])
        .arg(twins.0.join("plugins/libplugin_UCX.so"))
        .args(["-x", "c", "/dev/null", "-x", "none"])
        .arg(folder.0.join("libmissing.so"))
        .status()
        .unwrap();
    assert!(status.success());
    // SAFETY: no other thread of this scenario reads the environment.
    unsafe { std::env::set_var("NIXL_PLUGIN_DIR", twins.0.join("plugins")) };
    unavailable(in_dir(&real), &["libplugin_UCX.so", "libmissing_dt.so"]);
    // SAFETY: as above.
    unsafe { std::env::remove_var("NIXL_PLUGIN_DIR") };
    unavailable(
        NixlConfig {
            plugin: Some("NOSUCH".into()),
            ..in_dir(&real)
        },
        &["NOSUCH"],
    );
    let transport = create(BackendChoice::Nixl, in_dir(&real)).unwrap();
    // One NIXL in a process.
    unavailable(in_dir(&folder.0), &["has loaded", name]);
    assert!(create(BackendChoice::Nixl, NixlConfig::default()).is_ok());
    transport.close(PATIENCE).unwrap();
}

fn no_library() {
    // SAFETY: no other thread of this scenario reads the environment.
    unsafe { std::env::remove_var("DT_NIXL_LIB_DIR") };
    unavailable(
        NixlConfig::default(),
        &["libnixl_capi.so", "DT_NIXL_LIB_DIR"],
    );
    unavailable(
        NixlConfig::default(),
        &["libnixl_capi.so", "DT_NIXL_LIB_DIR"],
    );
}

fn no_failure_detection() {
    // SAFETY: no other thread of this scenario reads the environment.
    unsafe { std::env::set_var("UCX_TLS", "posix,cma") };
    unavailable(NixlConfig::default(), &["UCX_TLS", "add tcp"]);
}

fn many_transports() {
    let memory = Memory::new(64 * BLOCK);
    memory.fill(1, BLOCK);
    let other = Memory::new(64 * BLOCK);
    for round in 0..5 {
        let a = transport(None, &memory, BLOCK);
        let b = transport(None, &other, BLOCK);
        other.bytes().fill(0);
        let metadata = b.agent_metadata().unwrap();
        a.add_peer("b", &metadata, other.base(), 64, BLOCK as u64)
            .unwrap();
        let id = write(&a, "b", &[1], &[2]);
        let start = Instant::now();
        while poll(&a).is_empty() {
            assert!(start.elapsed() < PATIENCE);
            poll(&b);
        }
        let _ = id;
        assert!(holds(other.block(2, BLOCK), 1, 1));
        // Not closed in every round: dropping it must do.
        if round % 2 == 0 {
            a.close(PATIENCE).unwrap();
            b.close(PATIENCE).unwrap();
        }
    }
}

fn descriptors() -> usize {
    std::fs::read_dir("/proc/self/fd").unwrap().count()
}

fn resident() -> usize {
    let text = std::fs::read_to_string("/proc/self/statm").unwrap();
    text.split(' ').nth(1).unwrap().parse::<usize>().unwrap() * 4096
}

fn peers_leave_nothing_behind() {
    let memory = Memory::new(64 * BLOCK);
    memory.fill(1, BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    let peer = Peer::start("b", 64, BLOCK);
    let mut bent = peer.metadata.clone();
    bent.truncate(300);
    let rounds = |count: u32| {
        for _ in 0..count {
            peer.add_to(&transport, "b");
            let id = write(&transport, "b", &[1], &[2]);
            assert_eq!(finish(&transport, &[id])[&id], Ok(()));
            transport.remove_peer("b").unwrap();
            assert!(try_add(&transport, "b", &bent, &peer).is_err());
        }
        let start = Instant::now();
        while start.elapsed() < Duration::from_millis(200) {
            poll(&transport);
        }
    };
    rounds(100);
    let before = (descriptors(), resident());
    rounds(300);
    let after = (descriptors(), resident());
    println!("{before:?} -> {after:?}");
    assert!(
        after.1 <= before.1 + (30 << 20),
        "{before:?} -> {after:?} bytes"
    );
    // UCX keeps the sockets of a closed endpoint until the other side is gone.
    peer.finish();
    let start = Instant::now();
    while descriptors() > before.0 {
        assert!(
            start.elapsed() < PATIENCE,
            "{} descriptors stay",
            descriptors()
        );
        poll(&transport);
    }
    transport.close(PATIENCE).unwrap();
}
