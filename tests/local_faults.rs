//! LOCAL when processes die, stop, close, are replaced, or may not be reached.

mod local_common;

use std::collections::BTreeSet;
use std::os::fd::AsRawFd;
use std::os::unix::fs::FileExt;
use std::time::{Duration, Instant};

use datatransport::backend::{Backend, Direction, Event};
use datatransport::error::Status;
use local_common::{
    Backing, Child, Node, PATIENCE, body, mappings_of, pattern, raise_descriptor_limit, serve,
    status, to_hex,
};
use rustix::process::Signal;

#[test]
fn child_main() {
    serve();
}

const BLOCKS: u32 = 64;
const LEN: u64 = 65536;

fn all() -> Vec<u32> {
    (0..BLOCKS).collect()
}

/// Kills a peer with transfers queued; every one must end, and another peer's must not notice.
fn killed(backing: Backing) {
    let (mut victim, mut witness) = (Child::new(), Child::new());
    let (peer, other) = (
        victim.create(backing, BLOCKS.into(), LEN),
        witness.create(backing, BLOCKS.into(), LEN),
    );
    let mut node = Node::new(Backing::Foreign, BLOCKS.into(), LEN);
    node.memory.put(&pattern(5, node.memory.bytes));
    let (doomed, safe) = (
        node.connect_to(&peer).unwrap(),
        node.connect_to(&other).unwrap(),
    );
    let mut ops = Vec::new();
    for _ in 0..50 {
        ops.push(
            node.start(doomed, Direction::Write, &all(), &all(), &peer.region)
                .unwrap(),
        );
    }
    // Until something has been moved for certain.
    let first = ops[0];
    node.until(|event| matches!(event, Event::Ended { op, .. } if *op == first).then_some(()));
    victim.kill();
    let good = node
        .start(safe, Direction::Write, &all(), &all(), &other.region)
        .unwrap();
    let (mut ended, mut lost, mut arrived) = (0, 0, false);
    let deadline = Instant::now() + PATIENCE;
    while (!arrived || lost == 0) && Instant::now() < deadline {
        for event in node.progress() {
            match event {
                Event::Ended { op, result } if op == good => arrived = result.is_ok(),
                Event::Ended { op, result } => {
                    let error = result.unwrap_err();
                    assert_eq!(error.status, Status::PeerLost, "{op:?}: {error}");
                    ended += 1;
                }
                Event::Lost { conn, error } => {
                    assert_eq!((conn, error.status), (doomed, Status::PeerLost));
                    lost += 1;
                }
            }
        }
    }
    assert!(
        arrived && lost == 1 && ended >= 40,
        "{arrived} {lost} {ended}"
    );
    assert!(node.progress().is_empty());
    let refused = node.start(doomed, Direction::Write, &[0], &[0], &peer.region);
    assert_eq!(status(refused), Status::PeerLost);
    let ino = body(&peer.metadata)["control"]["ino"].as_u64().unwrap();
    assert_eq!(mappings_of(ino), 0, "nothing of the dead is kept");
    node.local.disconnect(doomed);
    assert!(witness.bytes() == node.memory.get());
    let again = node.connect_to(&peer).unwrap_err();
    assert_eq!(again.status, Status::PeerLost, "{again}");
}

#[test]
fn a_killed_peer_is_lost_and_nobody_else() {
    killed(Backing::Shared);
    killed(Backing::Foreign);
}

#[test]
fn an_idle_peer_that_dies_is_noticed() {
    let mut child = Child::new();
    let peer = child.create(Backing::Shared, 4, 4096);
    let mut node = Node::new(Backing::Foreign, 4, 4096);
    let mut witness = Child::new();
    let other = witness.create(Backing::Shared, 4, 4096);
    let conn = node.connect_to(&peer).unwrap();
    for _ in 0..100 {
        node.connect_to(&other).unwrap();
    }
    assert!(node.progress().is_empty());
    child.kill();
    // The first look finds it, among however many.
    let events = node.progress();
    assert!(
        matches!(&events[..], [Event::Lost { conn: lost, .. }] if *lost == conn),
        "{events:?}"
    );
    // And so does a start, before any look.
    let mut child = Child::new();
    let peer = child.create(Backing::Foreign, 4, 4096);
    let conn = node.connect_to(&peer).unwrap();
    child.kill();
    let error = node
        .start(conn, Direction::Read, &[0], &[0], &peer.region)
        .unwrap_err();
    assert_eq!(error.status, Status::PeerLost);
    assert_eq!(node.progress(), [Event::Lost { conn, error }]);
}

#[test]
fn an_idle_peer_that_closes_is_noticed() {
    let mut child = Child::new();
    let peer = child.create(Backing::Shared, 4, 4096);
    let mut node = Node::new(Backing::Foreign, 4, 4096);
    let conn = node.connect_to(&peer).unwrap();
    child.ask("close").unwrap();
    assert_eq!(
        node.until_lost(conn).message,
        "the peer has closed its transport"
    );
    assert_eq!(status(node.connect_to(&peer)), Status::PeerLost);
}

const CROWD: usize = 40;

/// Progresses until all connections to one peer are lost; the number of calls that it took.
fn all_lost(node: &mut Node) -> usize {
    let mut lost = BTreeSet::new();
    for calls in 1.. {
        for event in node.progress() {
            let Event::Lost { conn, error } = event else {
                panic!("{event:?}")
            };
            assert_eq!(error.status, Status::PeerLost);
            assert!(lost.insert(conn), "{conn:?} is lost twice");
        }
        if lost.len() == CROWD {
            return calls;
        }
        assert!(calls < 1000, "only {} are lost", lost.len());
    }
    unreachable!()
}

#[test]
fn all_connections_to_a_peer_are_lost_with_it() {
    let mut node = Node::new(Backing::Foreign, 4, 4096);
    let crowd = |node: &mut Node| {
        let mut child = Child::new();
        let peer = child.create(Backing::Shared, 4, 4096);
        for _ in 0..CROWD {
            node.connect_to(&peer).unwrap();
        }
        assert!(node.progress().is_empty());
        child
    };
    let mut dying = crowd(&mut node);
    dying.kill();
    assert_eq!(all_lost(&mut node), 1);
    let mut closing = crowd(&mut node);
    closing.ask("close").unwrap();
    // A few of all, the lost ones among them, are looked at in each.
    assert!(all_lost(&mut node) <= 6);
}

#[test]
fn running_out_of_descriptors_is_not_for_ever() {
    let mut target = Child::new();
    let peer = target.create(Backing::Shared, 4, 4096);
    let (base, blocks) = (peer.region.base(), peer.region.num_blocks());
    // A process that has connected to nobody before.
    let mut child = Child::new();
    child.create(Backing::Foreign, 4, 4096);
    let command = format!("starve {} {base} {blocks} 4096", to_hex(&peer.metadata));
    let room: u32 = child.ask(&command).unwrap().parse().unwrap();
    assert!(room >= 3, "only {room} descriptors were needed");
    child.ask("fill 6").unwrap();
    child.connect(&peer).unwrap();
    child.ask("write").unwrap();
    assert!(target.bytes() == pattern(6, 4 * 4096));
}

/// The owner closes while a peer writes without pause. After `Ok` its memory is its own.
fn closed_under_fire(backing: Backing) {
    for round in 0..10 {
        let mut writer = Child::new();
        writer.create(Backing::Foreign, BLOCKS.into(), LEN);
        writer.ask("fill 1").unwrap();
        let mut node = Node::new(backing, BLOCKS.into(), LEN);
        writer.connect(&node.described()).unwrap();
        writer.ask("loop").unwrap();
        let deadline = Instant::now() + PATIENCE;
        while let Err(error) = node.local.try_close() {
            assert_eq!(error.status, Status::Timeout, "{error}");
            assert!(error.message.contains(&writer.pid().to_string()), "{error}");
            assert!(Instant::now() < deadline, "{error}");
        }
        let own = pattern(100 + round, node.memory.bytes);
        node.memory.put(&own);
        let told = writer.answer().unwrap_err();
        assert!(
            told.starts_with("PeerLost: ") && told.contains("closed"),
            "{told}"
        );
        assert!(
            node.memory.get() == own,
            "something was written after the close"
        );
        // Its next owner may unmap it: the writer must live on.
        let described = node.described();
        drop(node);
        assert!(
            writer
                .connect(&described)
                .unwrap_err()
                .starts_with("PeerLost")
        );
    }
}

#[test]
fn nothing_lands_after_close() {
    closed_under_fire(Backing::Shared);
    closed_under_fire(Backing::Foreign);
}

/// Makes the first slot of `node` look as if the process of `theirs` were in the middle of a copy,
/// until the result is dropped.
fn inside(node: &Node, theirs: &serde_json::Value) -> std::fs::File {
    let fd = &body(node.local.metadata())["control"]["fd"];
    let path = format!("/proc/self/fd/{fd}");
    let mut options = std::fs::OpenOptions::new();
    let page = options.read(true).write(true).open(path).unwrap();
    // SAFETY: all-zero is a valid value, and the kernel reads one `flock` behind the pointer.
    let locked = unsafe {
        let mut lock: libc::flock = std::mem::zeroed();
        lock.l_type = libc::F_WRLCK as i16;
        (lock.l_start, lock.l_len) = (1, 1);
        libc::fcntl(page.as_raw_fd(), libc::F_OFD_SETLK, &lock)
    };
    assert_eq!(locked, 0);
    let word = theirs["start_time"].as_u64().unwrap() << 22 | theirs["pid"].as_u64().unwrap();
    page.write_all_at(&word.to_ne_bytes(), 64).unwrap();
    page.write_all_at(&1u64.to_ne_bytes(), 72).unwrap();
    page
}

#[test]
fn a_peer_that_is_stopped_inside_a_copy_keeps_the_region() {
    let mut child = Child::new();
    let theirs = body(&child.create(Backing::Shared, 4, 4096).metadata);
    let mut node = Node::new(Backing::Shared, 4, 4096);
    let _page = inside(&node, &theirs);
    child.signal(Signal::STOP);
    for _ in 0..2 {
        let error = node.local.try_close().unwrap_err();
        assert_eq!(error.status, Status::Timeout);
        assert!(
            error
                .message
                .contains(&format!("process {}", theirs["pid"])),
            "{error}"
        );
    }
    child.kill();
    node.local.try_close().unwrap();
    node.local.try_close().unwrap();
}

#[test]
fn force_does_not_wait_for_ever() {
    let mut child = Child::new();
    let theirs = body(&child.create(Backing::Shared, 4, 4096).metadata);
    let mut node = Node::new(Backing::Shared, 4, 4096);
    let control = body(node.local.metadata())["control"].clone();
    let _page = inside(&node, &theirs);
    let before = Instant::now();
    node.local.force_close();
    assert!(before.elapsed() >= Duration::from_millis(900) && before.elapsed() < PATIENCE);
    assert_eq!(mappings_of(control["ino"].as_u64().unwrap()), 0);
    assert!(node.local.try_close().is_ok());
}

/// Peers start another program while one of their threads copies; the process lives on, with the
/// same pid and start time. It must not keep the region.
fn left_in_the_middle(backing: Backing) {
    let mut flags_left_up = 0;
    for _ in 0..8 {
        let mut writer = Child::new();
        writer.create(Backing::Foreign, BLOCKS.into(), LEN);
        let mut node = Node::new(backing, BLOCKS.into(), LEN);
        writer.connect(&node.described()).unwrap();
        writer.ask("exec_in_copy").unwrap();
        let name = format!("/proc/{}/comm", writer.pid().as_raw_nonzero());
        let deadline = Instant::now() + PATIENCE;
        while std::fs::read_to_string(&name).unwrap() != "sleep\n" {
            assert!(Instant::now() < deadline, "it has not started");
            std::thread::yield_now();
        }
        let fd = &body(node.local.metadata())["control"]["fd"];
        let page = std::fs::File::open(format!("/proc/self/fd/{fd}")).unwrap();
        let mut active = [0; 8];
        page.read_exact_at(&mut active, 72).unwrap();
        flags_left_up += u64::from_ne_bytes(active);
        // The kernel closes the files of the old program a little after it names the new one.
        let deadline = Instant::now() + Duration::from_secs(20);
        while let Err(error) = node.local.try_close() {
            assert!(Instant::now() < deadline, "{error}");
        }
        assert!(rustix::process::test_kill_process(writer.pid()).is_ok());
    }
    assert!(flags_left_up > 0, "nobody was in the middle of a copy");
}

#[test]
fn a_program_that_is_left_in_the_middle_of_a_copy_keeps_nothing() {
    left_in_the_middle(Backing::Shared);
    left_in_the_middle(Backing::Foreign);
}

#[test]
fn connections_of_programs_that_were_left_make_room() {
    let node = Node::new(Backing::Shared, 4, 4096);
    let me = node.described();
    // More than there are slots, in processes that all live on.
    let mut lives = Vec::new();
    for _ in 0..9 {
        let mut child = Child::new();
        child.create(Backing::Foreign, 4, 4096);
        for _ in 0..128 {
            child.connect(&me).unwrap();
        }
        child.ask("exec").unwrap();
        lives.push(child);
    }
}

/// The peer's process goes on, with the same pid and start time, as another program.
fn replaced(backing: Backing) {
    let mut child = Child::new();
    let peer = child.create(backing, 4, 4096);
    let mut node = Node::new(Backing::Foreign, 4, 4096);
    let (idle, busy) = (
        node.connect_to(&peer).unwrap(),
        node.connect_to(&peer).unwrap(),
    );
    child.ask("exec").unwrap();
    let deadline = Instant::now() + PATIENCE;
    let error = loop {
        assert!(Instant::now() < deadline, "the exec was not noticed");
        if let Err(error) = node.run(busy, Direction::Write, &[1], &[2], &peer.region) {
            break error;
        }
    };
    assert_eq!(error.status, Status::PeerLost);
    // When a thread other than the first calls exec, the pidfd may tell of it before the lock does.
    let reasons = ["started another program", "is gone"];
    assert!(
        reasons.iter().any(|reason| error.message.contains(reason)),
        "{error}"
    );
    assert_eq!(node.until_lost(idle).status, Status::PeerLost);
    assert_eq!(status(node.connect_to(&peer)), Status::PeerLost);
    assert!(
        rustix::process::test_kill_process(child.pid()).is_ok(),
        "it lives"
    );
}

#[test]
fn another_program_in_the_same_process_is_noticed() {
    replaced(Backing::Shared);
    replaced(Backing::Foreign);
}

/// As `replaced`, with transfers queued: those that are left must not end well.
fn replaced_under_load(backing: Backing, command: &str) {
    let mut child = Child::new();
    let peer = child.create(backing, BLOCKS.into(), LEN);
    let mut node = Node::new(Backing::Foreign, BLOCKS.into(), LEN);
    let conn = node.connect_to(&peer).unwrap();
    for _ in 0..2000 {
        node.start(conn, Direction::Write, &all(), &all(), &peer.region)
            .unwrap();
    }
    child.ask(command).unwrap();
    let deadline = Instant::now() + PATIENCE;
    let (mut failed, mut lost) = (0, None);
    while lost.is_none() && Instant::now() < deadline {
        for event in node.progress() {
            match event {
                Event::Lost { error, .. } => lost = Some(error),
                Event::Ended { result: Ok(()), .. } => {}
                Event::Ended {
                    result: Err(error), ..
                } => {
                    assert_eq!(error.status, Status::PeerLost, "{error}");
                    failed += 1;
                }
            }
        }
    }
    assert_eq!(lost.unwrap().status, Status::PeerLost);
    assert!(failed > 0, "all transfers to another program ended well");
}

#[test]
fn transfers_to_another_program_do_not_end_well() {
    replaced_under_load(Backing::Shared, "exec");
    replaced_under_load(Backing::Foreign, "exec");
}

// A forked child keeps all descriptors of its parent, the lock on the control page with them. The
// new program's memory is safe all the same.
#[test]
fn a_forked_child_does_not_hide_another_program() {
    replaced_under_load(Backing::Shared, "fork_exec");
    replaced_under_load(Backing::Foreign, "fork_exec");
}

#[test]
fn a_restarted_peer_is_another_one() {
    let mut node = Node::new(Backing::Foreign, 4, 4096);
    node.memory.put(&pattern(8, node.memory.bytes));
    let mut old = None;
    for _ in 0..5 {
        let mut child = Child::new();
        let peer = child.create(Backing::Shared, 4, 4096);
        let conn = node.connect_to(&peer).unwrap();
        node.run(
            conn,
            Direction::Write,
            &[0, 1, 2, 3],
            &[0, 1, 2, 3],
            &peer.region,
        )
        .unwrap();
        assert!(child.bytes() == node.memory.get());
        if let Some(stale) = old.replace(peer.clone()) {
            assert_eq!(status(node.connect_to(&stale)), Status::PeerLost);
        }
        // The same process with another transport: the old metadata leads nowhere.
        child.ask("close").unwrap();
        let renewed = child.create(Backing::Shared, 4, 4096);
        assert_eq!(status(node.connect_to(&peer)), Status::PeerLost);
        assert!(node.connect_to(&renewed).is_ok());
        child.kill();
        node.until_lost(conn);
    }
}

#[test]
fn connections_of_the_dead_make_room() {
    let mut node = Node::new(Backing::Shared, 4, 4096);
    let me = node.described();
    raise_descriptor_limit();
    // All slots but one are our own; a process that dies leaves its own, and the next takes it.
    for _ in 0..1022 {
        node.connect_to(&me).unwrap();
    }
    for _ in 0..3 {
        let mut child = Child::new();
        child.create(Backing::Foreign, 4, 4096);
        child.connect(&me).unwrap();
        assert_eq!(status(node.connect_to(&me)), Status::NoMemory);
        child.kill();
    }
    node.connect_to(&me).unwrap();
}
