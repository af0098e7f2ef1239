//! Forked children of a process that uses NIXL.

mod nixl_support;

use std::os::unix::process::ExitStatusExt;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::process::ExitStatus;
use std::time::Duration;

use datatransport::backend::Direction;
use datatransport::error::Status;
use datatransport::transport::{CancelMode, NixlConfig, Transport, XferId};
use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[
    ("a_forked_child", a_forked_child),
    ("no_second_life_in_a_child", no_second_life_in_a_child),
    ("a_child_of_an_idle_process", a_child_of_an_idle_process),
];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios! {
    a_forked_child_default: a_forked_child Default;
    a_forked_child_tcp: a_forked_child Tcp;
    no_second_life_in_a_child_default: no_second_life_in_a_child Default;
    no_second_life_in_a_child_tcp: no_second_life_in_a_child Tcp;
    a_child_of_an_idle_process_default: a_child_of_an_idle_process Default;
    a_child_of_an_idle_process_tcp: a_child_of_an_idle_process Tcp;
}

const BLOCK: usize = 1 << 20;
const COUNT: u32 = 64;

/// What a child exits with when all was well; exit() runs UCX's destructors.
const WELL: i32 = 7;

/// Runs `child` in a forked child and waits for its end.
fn in_a_child(child: impl FnOnce()) {
    // SAFETY: no other thread of the scenario is inside the library, or holds a lock of it.
    let pid = unsafe { libc::fork() };
    assert!(pid >= 0);
    if pid == 0 {
        let well = catch_unwind(AssertUnwindSafe(child)).is_ok();
        std::process::exit(if well { WELL } else { 1 });
    }
    let mut status = -1;
    // SAFETY: `pid` is a child of this process, and `status` outlives the call.
    assert_eq!(unsafe { libc::waitpid(pid, &raw mut status, 0) }, pid);
    let status = ExitStatus::from_raw(status);
    assert_eq!(status.code(), Some(WELL), "the child: {status}");
}

/// A transport with `progress_thread`, a peer that plays dead, and a transfer that waits for it.
fn with_work(memory: &Memory, progress_thread: bool) -> (Transport, Peer, XferId) {
    let config = NixlConfig {
        progress_thread,
        ..NixlConfig::default()
    };
    memory.fill(1, BLOCK);
    let transport = transport_with(Some("a"), memory, BLOCK, config);
    let mut peer = Peer::start("b", COUNT as usize, BLOCK);
    peer.add_to(&transport, "b");
    let warm = write(&transport, "b", &[0], &[0]);
    assert_eq!(finish(&transport, &[warm])[&warm], Ok(()));
    peer.drive(0);
    let id = write(&transport, "b", &all(COUNT), &all(COUNT));
    for _ in 0..20 {
        transport.poll(None, 0, &mut |_| {}).unwrap();
    }
    (transport, peer, id)
}

/// The parent has lost nothing by its child.
fn all_goes_on(transport: &Transport, mut peer: Peer, id: XferId) {
    peer.drive(2);
    assert_eq!(finish(transport, &[id])[&id], Ok(()));
    for index in 0..COUNT {
        assert!(holds(peer.memory.block(index, BLOCK), 1, index));
    }
    peer.memory.fill(2, BLOCK);
    let id = transport
        .submit(Direction::Read, "b", &all(COUNT), &all(COUNT), 0)
        .unwrap();
    assert_eq!(finish(transport, &[id])[&id], Ok(()));
    transport.close(PATIENCE).unwrap();
    peer.finish();
}

fn refuses_everything(transport: &Transport, peer: &Peer, id: XferId) {
    let forked = |what: &str, result: Result<(), datatransport::error::Error>| {
        let status = result.map_err(|error| error.status);
        assert_eq!(status, Err(Status::Forked), "{what}");
    };
    forked("metadata", transport.agent_metadata().map(drop));
    forked("add", peer.try_add_to(transport, "c"));
    forked("add again", peer.try_add_to(transport, "b"));
    forked("status", transport.peer_status("b"));
    let submit = transport.submit(Direction::Write, "b", &[0], &[0], 0);
    forked("submit", submit.map(drop));
    forked("poll", transport.poll(None, 1, &mut |_| {}).map(drop));
    let wait = transport.wait(None, 1, PATIENCE, &mut |_| {});
    forked("wait", wait.map(drop));
    let cancel = transport.cancel(&[id], CancelMode::Immediate);
    forked("cancel", cancel.map(drop));
    forked("remove", transport.remove_peer("b"));
    forked("stats", transport.stats().map(drop));
    forked("close", transport.close(Duration::ZERO));
}

fn a_forked_child() {
    for progress_thread in [false, true] {
        let memory = Memory::new(COUNT as usize * BLOCK);
        let (transport, peer, id) = with_work(&memory, progress_thread);
        let mut whole = Some((transport, peer));
        in_a_child(|| {
            let (transport, peer) = whole.take().unwrap();
            refuses_everything(&transport, &peer, id);
            drop(transport);
            // It is the parent's child: dropping it here would end it.
            std::mem::forget(peer);
        });
        // One that drops nothing.
        in_a_child(|| ());
        let (transport, peer) = whole.unwrap();
        all_goes_on(&transport, peer, id);
    }
}

/// UCX's thread is missing there: nobody could reach the child.
fn no_second_life_in_a_child() {
    let memory = Memory::new(COUNT as usize * BLOCK);
    let (transport, peer, id) = with_work(&memory, false);
    let mut whole = Some(transport);
    in_a_child(|| {
        unavailable(NixlConfig::default(), &["forked", "before the fork"]);
        drop(whole.take());
        unavailable(NixlConfig::default(), &["forked", "before the fork"]);
        auto_takes_local(NixlConfig::default(), &["forked"]);
        in_a_child(|| unavailable(NixlConfig::default(), &["forked"]));
    });
    let transport = whole.unwrap();
    // Others in this process are welcome as before, and so are children once all are closed.
    let other = Memory::new(BLOCK);
    drop(nixl_support::transport(Some("other"), &other, BLOCK));
    all_goes_on(&transport, peer, id);
    in_a_child(both_ways);
    drop(transport);
    in_a_child(both_ways);
}

fn a_child_of_an_idle_process() {
    let memory = Memory::new(BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    transport.close(PATIENCE).unwrap();
    in_a_child(both_ways);
    both_ways();
}

/// A transport that is reached by a peer, and reaches it.
fn both_ways() {
    let memory = Memory::new(COUNT as usize * BLOCK);
    let own = transport(Some("child"), &memory, BLOCK);
    let mut peer = Peer::start("c", COUNT as usize, BLOCK);
    peer.memory.fill(9, BLOCK);
    let metadata = hex(&own.agent_metadata().unwrap());
    peer.tell(&format!("add {metadata} {} {COUNT}", memory.base()));
    expect_while_polling(&own, &mut peer, "added");
    peer.tell(&format!("push {COUNT}"));
    expect_while_polling(&own, &mut peer, "pushed");
    for index in 0..COUNT {
        assert!(holds(memory.block(index, BLOCK), 9, index));
    }
    memory.fill(1, BLOCK);
    peer.add_to(&own, "c");
    let id = write(&own, "c", &all(COUNT), &all(COUNT));
    assert_eq!(finish(&own, &[id])[&id], Ok(()));
    for index in 0..COUNT {
        assert!(holds(peer.memory.block(index, BLOCK), 1, index));
    }
    own.close(PATIENCE).unwrap();
    peer.finish();
}
