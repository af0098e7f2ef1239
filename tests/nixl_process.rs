//! What NIXL does to the process that embeds it.

mod nixl_support;

use std::time::{Duration, Instant};

use datatransport::error::Status;
use datatransport::transport::{NixlConfig, Transport};
use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[
    ("leaves_the_process_alone", leaves_the_process_alone),
    ("prints_nothing", prints_nothing),
    ("idle_sleeps_long", idle_sleeps_long),
    ("many_transports", many_transports),
    ("peers_leave_nothing_behind", peers_leave_nothing_behind),
    ("refused_keys_leave_no_more", refused_keys_leave_no_more),
];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios! {
    leaves_the_process_alone_default: leaves_the_process_alone Default;
    idle_sleeps_long_default: idle_sleeps_long Default;
    idle_sleeps_long_tcp: idle_sleeps_long Tcp;
    many_transports_default: many_transports Default;
    peers_leave_nothing_behind_default: peers_leave_nothing_behind Default;
    peers_leave_nothing_behind_tcp: peers_leave_nothing_behind Tcp;
    refused_keys_leave_no_more_default: refused_keys_leave_no_more Default;
    refused_keys_leave_no_more_tcp: refused_keys_leave_no_more Tcp;
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

/// Processor time of this process, and how often one of its threads went to sleep.
fn usage() -> (Duration, u64) {
    // SAFETY: a zeroed rusage is a valid one, and the call only writes it.
    let usage = unsafe {
        let mut usage: libc::rusage = std::mem::zeroed();
        assert_eq!(libc::getrusage(libc::RUSAGE_SELF, &mut usage), 0);
        usage
    };
    let time = |time: libc::timeval| {
        Duration::from_secs(time.tv_sec as u64) + Duration::from_micros(time.tv_usec as u64)
    };
    let sleeps = usage.ru_nvcsw as u64;
    (time(usage.ru_utime) + time(usage.ru_stime), sleeps)
}

/// What a wake-up costs is the machine's affair; how many there are is ours.
fn idle_sleeps_long() {
    let memory = Memory::new(16 * BLOCK);
    for (progress_thread, most_asleep, most_waiting) in [(false, 100, 2000), (true, 12_000, 14_000)]
    {
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
        let count = |what: &str, most: u64, idle: &dyn Fn()| {
            let before = usage();
            idle();
            let (work, sleeps) = (usage().0 - before.0, usage().1 - before.1);
            println!("progress thread {progress_thread}, {what}: {sleeps} sleeps, {work:?}");
            assert!(sleeps <= most, "{what}: {sleeps} sleeps");
            // Who never sleeps does not sleep often either.
            assert!(work < span / 2, "{what}: {work:?} of {span:?}");
        };
        count("no calls", most_asleep, &|| std::thread::sleep(span));
        count("waiting", most_waiting, &|| {
            assert!(wait(&transport, span).is_empty());
        });
        transport.close(PATIENCE).unwrap();
        peer.finish();
    }
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
    descriptors_of(std::process::id())
}

fn descriptors_of(pid: u32) -> usize {
    std::fs::read_dir(format!("/proc/{pid}/fd"))
        .unwrap()
        .count()
}

/// What UCX keeps of every endpoint that was closed while the other side lives: see
/// dt_remove_remote_peer. It takes a few more while it connects.
const SOCKETS: usize = 2;
const CONNECTING: usize = 10;

/// They go when the peer does.
fn all_go_with(peer: Peer, transport: &Transport, before: usize) {
    peer.finish();
    let start = Instant::now();
    while descriptors() > before {
        let left = descriptors();
        assert!(start.elapsed() < PATIENCE, "{left} descriptors stay");
        poll(transport);
    }
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
    let start = descriptors();
    rounds(100);
    let count = || [descriptors(), descriptors_of(peer.pid())];
    let before = (count(), resident());
    rounds(300);
    let after = (count(), resident());
    println!("{before:?} -> {after:?}");
    assert!(
        after.1 <= before.1 + (30 << 20),
        "{before:?} -> {after:?} bytes"
    );
    for (before, after) in before.0.iter().zip(after.0) {
        assert!(after <= before + 300 * SOCKETS + CONNECTING);
    }
    all_go_with(peer, &transport, start);
    transport.close(PATIENCE).unwrap();
}

/// What NIXL refuses only when the peer's endpoint is there costs what a removed peer costs.
fn refused_keys_leave_no_more() {
    const COUNT: usize = 200;
    let memory = Memory::new(64 * BLOCK);
    memory.fill(1, BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    let peer = Peer::start("b", 64, BLOCK);
    let base = peer.base.to_le_bytes();
    let at = peer.metadata.windows(8).rposition(|bytes| bytes == base);
    let (head, region) = peer.metadata.split_at(at.unwrap());
    // A key with nothing in it for each of eight memory domains, of host memory near to no device.
    let key = [&[0xff, 0, 0, 0, 0, 0, 0, 0, 0][..], &[0; 8], &[0xff]].concat();
    let len = (24 + key.len() as u64).to_le_bytes();
    let bent = [&head[..head.len() - 8], &len, &region[..24], &key, b"|"].concat();
    let refuse = || {
        let error = try_add(&transport, "bent", &bent, &peer).unwrap_err();
        assert_eq!(error.status, Status::Incompatible, "{error}");
        assert!(error.message.contains("NIXL cannot connect"), "{error}");
    };
    let start = descriptors();
    refuse();
    let count = || [descriptors(), descriptors_of(peer.pid())];
    let before = (count(), resident());
    for _ in 0..COUNT {
        refuse();
    }
    poll(&transport);
    let after = (count(), resident());
    println!("{before:?} -> {after:?}");
    assert!(after.1 <= before.1 + (10 << 20));
    for (before, after) in before.0.iter().zip(after.0) {
        assert!(after <= before + COUNT * SOCKETS + CONNECTING);
    }
    peer.add_to(&transport, "b");
    let id = write(&transport, "b", &[1], &[2]);
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    assert!(holds(peer.memory.block(2, BLOCK), 1, 1));
    transport.remove_peer("b").unwrap();
    all_go_with(peer, &transport, start);
    transport.close(PATIENCE).unwrap();
}
