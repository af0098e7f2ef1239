//! LOCAL moves the right bytes, each way, in one process and between two.

mod local_common;

use std::time::{Duration, Instant};

use datatransport::backend::{Backend, ConnId, Direction, Event, OpId, Stop};
use datatransport::error::Status;
use datatransport::extents::Runs;
use datatransport::layout::Layout;
use datatransport::region::Region;
use local_common::{
    Backing, Child, Described, HugePages, Node, body, holdings, mappings_of, pattern, serve, status,
};
use rustix::process::Signal;

#[test]
fn child_main() {
    serve();
}

/// A permutation of the blocks below `n`.
fn scattered(n: u32, step: u32) -> Vec<u32> {
    (0..n).map(|i| (i * step + 5) % n).collect()
}

fn ino(peer: &Described, field: &str) -> u64 {
    body(&peer.metadata)[field]["ino"].as_u64().unwrap_or(0)
}

/// Writes and reads every block, permuted, between two processes, and looks at all bytes.
fn both_ways(backing: Backing, blocks: u32, block_len: u64, stopped: bool) {
    let mut child = Child::new();
    let peer = child.create(backing, blocks.into(), block_len);
    child.ask("fill 1").unwrap();
    let mut node = Node::new(Backing::Foreign, blocks.into(), block_len);
    node.memory.put(&pattern(2, node.memory.bytes));
    let conn = node.connect_to(&peer).unwrap();
    let is_mapped = mappings_of(ino(&peer, "region_fd")) > 0;
    let mappable = matches!(backing, Backing::Shared | Backing::Huge);
    assert_eq!(is_mapped, mappable, "{backing:?}");
    let (from, to) = (scattered(blocks, 7), scattered(blocks, 11));
    let half = blocks as usize / 2;
    let block = |i: u32| i as usize * block_len as usize..(i as usize + 1) * block_len as usize;
    let (mut here, mut there) = (node.memory.get(), pattern(1, node.memory.bytes));

    if stopped {
        child.signal(Signal::STOP);
    }
    node.run(
        conn,
        Direction::Write,
        &from[..half],
        &to[..half],
        &peer.region,
    )
    .unwrap();
    node.run(
        conn,
        Direction::Read,
        &from[half..],
        &to[half..],
        &peer.region,
    )
    .unwrap();
    if stopped {
        child.signal(Signal::CONT);
    }

    for (l, r) in from[..half].iter().zip(&to[..half]) {
        there[block(*r)].copy_from_slice(&here[block(*l)]);
    }
    for (l, r) in from[half..].iter().zip(&to[half..]) {
        here[block(*l)].copy_from_slice(&there[block(*r)]);
    }
    assert!(child.bytes() == there, "the peer's blocks differ");
    assert!(node.memory.get() == here, "the own blocks differ");
    node.local.disconnect(conn);
    assert_eq!(mappings_of(ino(&peer, "region_fd")), 0, "{backing:?}");
}

#[test]
fn mapped_memory() {
    both_ways(Backing::Shared, 64, 4096, false);
    both_ways(Backing::Shared, 9, 333, false);
    both_ways(Backing::Shared, 4, 700_000, false);
}

#[test]
fn foreign_memory() {
    both_ways(Backing::Foreign, 150, 4096, false);
    both_ways(Backing::Foreign, 9, 333, false);
    both_ways(Backing::Foreign, 4, 1_300_000, false);
}

#[test]
fn memory_that_could_shrink_is_not_mapped() {
    both_ways(Backing::Unsealed, 64, 4096, false);
}

#[test]
fn files_that_are_no_memory_files_are_left_alone() {
    for backing in [Backing::Disk, Backing::Tmpfs] {
        both_ways(backing, 64, 4096, false);
        let node = Node::new(backing, 4, 4096);
        assert!(body(node.local.metadata()).get("region_fd").is_none());
    }
}

#[test]
fn huge_pages_are_mapped_and_unmapped_in_whole_ones() {
    // The region of the peer begins in the first, and ends inside of the third.
    let Some(_pages) = HugePages::reserve(3) else {
        return;
    };
    both_ways(Backing::Huge, 9, 500_000, false);
    let mut child = Child::new();
    let peer = child.create(Backing::Huge, 9, 500_000);
    let mut node = Node::new(Backing::Foreign, 9, 500_000);
    let part = Region::new(peer.region.base() + 2_500_000, 2, 500_000).unwrap();
    let conn = node.connect(&peer.metadata, part).unwrap();
    node.run(conn, Direction::Write, &[0], &[1], &part).unwrap();
    assert_eq!(mappings_of(ino(&peer, "region_fd")), 1);
    node.local.disconnect(conn);
    assert_eq!(mappings_of(ino(&peer, "region_fd")), 0);
}

#[test]
fn a_stopped_peer_delays_nothing() {
    both_ways(Backing::Shared, 64, 4096, true);
    both_ways(Backing::Foreign, 64, 4096, true);
}

#[test]
fn only_the_range_asked_for_is_reached() {
    let mut child = Child::new();
    let peer = child.create(Backing::Shared, 64, 1000);
    child.ask("fill 1").unwrap();
    let mut node = Node::new(Backing::Foreign, 64, 1000);
    // Blocks 7 to 16 of the peer, which begin and end inside pages.
    let part = Region::new(peer.region.base() + 7000, 10, 1000).unwrap();
    let conn = node.connect(&peer.metadata, part).unwrap();
    assert_eq!(mappings_of(ino(&peer, "region_fd")), 1);
    node.run(conn, Direction::Write, &[0], &[9], &part).unwrap();
    let mut expected = pattern(1, 64_000);
    expected[16_000..17_000].fill(0);
    assert!(child.bytes() == expected);
    for (base, blocks) in [(peer.region.base() - 1, 2), (peer.region.base() + 1, 64)] {
        let outside = Region::new(base, blocks, 1000).unwrap();
        let error = node.connect(&peer.metadata, outside).unwrap_err();
        assert_eq!(error.status, Status::Incompatible);
        for named in ["base_addr", "num_blocks", &format!("{base:#x}")] {
            assert!(error.message.contains(named), "{error}");
        }
    }
}

fn list(addresses: &[u64], block_len: u64) -> Layout {
    let most = addresses.len();
    Layout::of_blocks(addresses.iter().copied().map(Ok), block_len, most).unwrap()
}

/// Writes to blocks of a list, reads others, and looks at all bytes. `there` are the peer's.
fn through_a_list(
    node: &mut Node,
    peer: &Described,
    before: &[u8],
    there: &mut dyn FnMut() -> Vec<u8>,
) {
    node.memory.put(&pattern(2, node.memory.bytes));
    // In no order, with gaps; 1 and 2 follow on each other; 4 overlaps 1 and 2; 5 is 0 once more.
    let at: [usize; 6] = [62_000, 3000, 4000, 9250, 3500, 62_000];
    let addresses = at.map(|at| peer.region.base() + at as u64);
    let blocks = list(&addresses, 1000);
    let conn = node.connect(&peer.metadata, blocks.clone()).unwrap();
    let (mut want_there, mut want_here) = (before.to_vec(), node.memory.get());
    for (local, remote) in [(10, 1), (11, 2), (3, 3), (0, 5)] {
        let from = &want_here[local * 1000..][..1000];
        want_there[at[remote]..][..1000].copy_from_slice(from);
    }
    for (local, remote) in [(20, 4), (21, 0), (22, 5), (23, 1), (24, 2)] {
        let from = &want_there[at[remote]..][..1000];
        want_here[local * 1000..][..1000].copy_from_slice(from);
    }
    let (locals, remotes) = ([10, 11, 3, 0], [1, 2, 3, 5]);
    node.run(conn, Direction::Write, &locals, &remotes, &blocks)
        .unwrap();
    let (locals, remotes) = ([20, 21, 22, 23, 24], [4, 0, 5, 1, 2]);
    node.run(conn, Direction::Read, &locals, &remotes, &blocks)
        .unwrap();
    assert!(there() == want_there, "the peer's blocks differ");
    assert!(node.memory.get() == want_here, "the own blocks differ");
    node.local.disconnect(conn);

    let outside = [(0, -1), (5, 63_001), (2, -999), (1, 64_000)];
    for (index, past) in outside {
        let mut addresses = addresses;
        addresses[index] = peer.region.base().wrapping_add_signed(past);
        let refused = node.connect(&peer.metadata, list(&addresses, 1000));
        let error = refused.unwrap_err();
        assert_eq!(error.status, Status::Incompatible);
        let block = format!("block {index} of the peer, at {:#x},", addresses[index]);
        assert!(error.message.contains(&block), "{error}");
    }
    let shorter = node.connect(&peer.metadata, list(&addresses, 999));
    assert_eq!(shorter.unwrap_err().status, Status::Incompatible);
}

#[test]
fn blocks_of_a_list() {
    for backing in [Backing::Shared, Backing::Foreign] {
        let mut child = Child::new();
        let peer = child.create(backing, 64, 1000);
        child.ask("fill 1").unwrap();
        let mut node = Node::new(Backing::Foreign, 64, 1000);
        through_a_list(&mut node, &peer, &pattern(1, 64_000), &mut || child.bytes());
        assert_eq!(mappings_of(ino(&peer, "region_fd")), 0, "{backing:?}");
    }
    let target = Node::new(Backing::Foreign, 64, 1000);
    target.memory.put(&pattern(3, 64_000));
    let mut node = Node::new(Backing::Foreign, 64, 1000);
    let there = &mut || target.memory.get();
    through_a_list(&mut node, &target.described(), &pattern(3, 64_000), there);
}

#[test]
fn peers_of_one_process_and_oneself() {
    let mut target = Node::new(Backing::Foreign, 32, 4096);
    target.memory.put(&pattern(3, target.memory.bytes));
    let mut node = Node::new(Backing::Foreign, 32, 4096);
    node.memory.put(&pattern(4, node.memory.bytes));
    let remote = target.region;
    let conn = node.connect_to(&target.described()).unwrap();
    let all: Vec<u32> = (0..32).collect();
    node.run(conn, Direction::Read, &all[..16], &all[16..], &remote)
        .unwrap();
    let expected = pattern(3, 32 * 4096);
    assert!(node.memory.get()[..16 * 4096] == expected[16 * 4096..]);

    let me = node.connect_to(&node.described()).unwrap();
    let own = node.region;
    let before = node.memory.get();
    node.run(me, Direction::Write, &all, &all, &own).unwrap();
    assert!(
        node.memory.get() == before,
        "blocks that go to themselves stay"
    );
    node.run(me, Direction::Write, &all[..16], &all[16..], &own)
        .unwrap();
    assert!(node.memory.get()[16 * 4096..] == before[..16 * 4096]);
    // What is source and destination may become anything; the rest may not.
    let before = node.memory.get();
    node.run(me, Direction::Write, &all[..16], &all[1..17], &own)
        .unwrap();
    let after = node.memory.get();
    assert!(after[..4096] == before[..4096] && after[17 * 4096..] == before[17 * 4096..]);

    target.local.try_close().unwrap();
    let after = target.memory.get();
    let error = node
        .start(conn, Direction::Write, &[0], &[0], &remote)
        .unwrap_err();
    assert_eq!(error.status, Status::PeerLost);
    assert_eq!(node.until_lost(conn), error);
    assert!(target.memory.get() == after);
    assert_eq!(
        status(node.connect_to(&target.described())),
        Status::PeerLost
    );
    node.run(me, Direction::Write, &[0], &[1], &own).unwrap();
    node.local.try_close().unwrap();
    assert_eq!(
        status(node.start(me, Direction::Write, &[0], &[1], &own)),
        Status::Closed
    );
}

#[test]
fn a_turn_is_one_piece_and_every_connection_has_its_turn() {
    let target = Node::new(Backing::Foreign, 64, 1 << 20);
    let mut node = Node::new(Backing::Foreign, 64, 1 << 20);
    let all: Vec<u32> = (0..64).collect();
    let remote = target.region;
    let conns = [(); 3].map(|()| node.connect_to(&target.described()).unwrap());
    assert_eq!(node.local.idle_for(), Some(Duration::from_millis(50)));
    let big = node
        .start(conns[0], Direction::Write, &all, &all, &remote)
        .unwrap();
    let small = node
        .start(conns[1], Direction::Write, &[0], &[0], &remote)
        .unwrap();
    let other = node
        .start(conns[2], Direction::Read, &[1], &[1], &remote)
        .unwrap();
    assert_eq!(node.local.idle_for(), None);
    // A deadline that has passed: one turn each, of 256 KiB.
    let mut ended = Vec::new();
    let mut turns = 0;
    while ended.len() < 3 {
        let mut events = Vec::new();
        node.local.progress(Instant::now(), &mut events);
        turns += 1;
        for event in events {
            let Event::Ended { op, result } = event else {
                panic!("{event:?}")
            };
            result.unwrap();
            ended.push((op, turns));
        }
    }
    assert_eq!(ended, [(small, 11), (other, 12), (big, 64 * 4 + 8)]);
}

#[test]
fn stopped_transfers_end_without_a_word() {
    let target = Node::new(Backing::Foreign, 256, 4096);
    let mut node = Node::new(Backing::Foreign, 256, 4096);
    node.memory.put(&pattern(1, node.memory.bytes));
    let conn = node.connect_to(&target.described()).unwrap();
    let all: Vec<u32> = (0..256).collect();
    let remote = target.region;
    // The first is large, so that all wait.
    let first = node
        .start(conn, Direction::Write, &all, &all, &remote)
        .unwrap();
    let ops: Vec<OpId> = (0..10_000)
        .map(|_| {
            node.start(conn, Direction::Write, &[0], &[1], &remote)
                .unwrap()
        })
        .collect();
    assert_eq!(node.local.stop(first), Stop::Stopped);
    for op in ops.iter().skip(1) {
        assert_eq!(node.local.stop(*op), Stop::Stopped);
    }
    let events = node.progress();
    assert_eq!(
        events,
        [Event::Ended {
            op: ops[0],
            result: Ok(())
        }]
    );
    // One that was copied as it started is over: the backend has nothing to tell of it.
    let done = node
        .start(conn, Direction::Write, &[0], &[2], &remote)
        .unwrap();
    assert!(node.local.idle_for().is_some());
    let result = Ok(());
    assert_eq!(node.progress(), [Event::Ended { op: done, result }]);
    let block = &pattern(1, 4096)[..];
    let bytes = target.memory.get();
    assert!(&bytes[4096..8192] == block && bytes[..4096] == [0; 4096]);
}

#[test]
fn a_read_after_writes_sees_them() {
    let mut child = Child::new();
    let peer = child.create(Backing::Shared, 64, 65536);
    let mut node = Node::new(Backing::Foreign, 64, 65536);
    node.memory.put(&pattern(9, node.memory.bytes));
    let conn = node.connect_to(&peer).unwrap();
    let (low, high): (Vec<u32>, Vec<u32>) = ((0..32).collect(), (32..64).collect());
    node.start(conn, Direction::Write, &low, &low, &peer.region)
        .unwrap();
    // Small enough for the short way, which must not overtake.
    let last = node
        .start(conn, Direction::Read, &high[..1], &low[31..], &peer.region)
        .unwrap();
    node.until(|event| matches!(event, Event::Ended { op, .. } if *op == last).then_some(()));
    let bytes = node.memory.get();
    assert!(bytes[32 * 65536..33 * 65536] == bytes[31 * 65536..32 * 65536]);
}

#[test]
fn connections_leave_nothing_behind() {
    let mut child = Child::new();
    let peer = child.create(Backing::Shared, 16, 4096);
    let foreign_peer = Child::new().create(Backing::Foreign, 16, 4096);
    let mut node = Node::new(Backing::Shared, 16, 4096);
    let bad = Region::new(peer.region.base(), 17, 4096).unwrap();
    let round = |node: &mut Node| {
        let conn = node.connect_to(&peer).unwrap();
        node.run(conn, Direction::Write, &[1], &[2], &peer.region)
            .unwrap();
        assert!(node.connect(&peer.metadata, bad).is_err());
        assert!(
            node.connect_to(&foreign_peer).is_err(),
            "its process is gone"
        );
        node.local.disconnect(conn);
    };
    round(&mut node);
    let (region, control) = (ino(&peer, "region_fd"), ino(&peer, "control"));
    let own = body(node.local.metadata());
    for _ in 0..2000 {
        round(&mut node);
        assert_eq!((mappings_of(region), mappings_of(control)), (0, 0));
    }
    // Other tests run at the same time: what is counted must be ours.
    assert!(holdings().0 < 500, "{:?}", holdings());
    node.local.try_close().unwrap();
    let fd = own["control"]["fd"].as_i64().unwrap();
    let link = std::fs::read_link(format!("/proc/self/fd/{fd}"));
    assert_eq!(
        mappings_of(own["control"]["ino"].as_u64().unwrap()),
        0,
        "{link:?}"
    );
}

#[test]
fn a_forked_child_has_no_part_in_it() {
    let mut child = Child::new();
    let peer = child.create(Backing::Shared, 16, 4096);
    let mut node = Node::new(Backing::Foreign, 16, 4096);
    let conn = node.connect_to(&peer).unwrap();
    let mut runs = Runs::of(&[0], &[0], &node.region, &peer.region.into()).unwrap();
    // SAFETY: the child only uses the transport and ends without unwinding or running handlers.
    let pid = unsafe { libc::fork() };
    if pid == 0 {
        let refused = node
            .local
            .start(conn, OpId(99), Direction::Write, &mut runs)
            .is_err();
        let mut events = Vec::new();
        node.local.progress(Instant::now(), &mut events);
        let closed = node.local.try_close().is_ok();
        drop(node);
        let good = refused && events.is_empty() && closed;
        // SAFETY: ends the forked child at once.
        unsafe { libc::_exit(if good { 0 } else { 1 }) };
    }
    let pid = rustix::process::Pid::from_raw(pid).unwrap();
    let wait = rustix::process::WaitOptions::empty();
    let (_, end) = rustix::process::waitpid(Some(pid), wait).unwrap().unwrap();
    assert_eq!(end.exit_status(), Some(0), "{end:?}");
    // Everything of the parent's is as it was, and so is its death watch.
    node.run(conn, Direction::Write, &[1], &[2], &peer.region)
        .unwrap();
    let described = node.described();
    assert!(child.connect(&described).is_ok());
    child.kill();
    assert_eq!(node.until_lost(conn).status, Status::PeerLost);
}

#[test]
fn unknown_connections_are_refused() {
    let mut node = Node::new(Backing::Foreign, 16, 4096);
    let region = node.region;
    assert_eq!(
        status(node.start(ConnId(77), Direction::Write, &[0], &[0], &region)),
        Status::NotFound
    );
}
