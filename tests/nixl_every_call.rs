//! Every single call of NIXL fails once, in every operation: a clear status or success, nothing left
//! behind, the neighbour unharmed, and the same again works.

mod nixl_support;

use std::time::Instant;

use datatransport::backend::{Direction, Message};
use datatransport::error::{Error, Result, Status};
use datatransport::transport::{BackendChoice, NixlConfig, ReadState, Transport};
use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[
    ("create_and_close", create_and_close),
    ("add_and_remove", add_and_remove),
    ("transfers", transfers),
    ("messages", messages),
];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios_behind_proxy! {
    create_and_close_default: create_and_close Default;
    add_and_remove_default: add_and_remove Default;
    add_and_remove_tcp: add_and_remove Tcp;
    transfers_default: transfers Default;
    transfers_tcp: transfers Tcp;
    messages_default: messages Default;
    messages_tcp: messages Tcp;
}

const BLOCK: usize = 4096;
const BLOCKS: usize = 64;

/// More calls than this are the same ones over and over: the caller polls.
const MOST_CALLS: usize = 100;

/// The `n`th call of NIXL in `operation` fails, for every `n` from 0 on. `operation` also checks what its
/// success or failure means; `undo` brings everything back to where it was.
fn every_call(
    world: &mut World,
    name: &str,
    operation: &mut dyn FnMut(&mut World) -> Result<()>,
    undo: &mut dyn FnMut(&mut World),
) {
    let (mut calls, mut refused) = (0, 0);
    while calls < MOST_CALLS {
        let before = world.proxy.holdings();
        world.proxy.plan(&format!("* skip={calls} answer=-2"));
        let result = operation(world);
        let fired = world.proxy.fired();
        world.proxy.plan("");
        if let Err(error) = &result {
            assert_eq!(fired, 1, "{name} failed by itself: {error}");
            refused += 1;
            let clear = [Status::Backend, Status::Unavailable, Status::Incompatible];
            assert!(
                clear.contains(&error.status) && !error.message.is_empty(),
                "{name}, call {calls}: {error:?}"
            );
            let again = operation(world);
            assert!(again.is_ok(), "{name}, after call {calls}: {again:?}");
        }
        undo(world);
        world.moves("c");
        assert_eq!(world.proxy.holdings(), before, "{name}, call {calls}");
        assert!(world.transport.peer_status("b").is_ok(), "{name}, {calls}");
        if fired == 0 {
            break;
        }
        calls += 1;
    }
    eprintln!("{name}: {calls} calls, of which {refused} made it fail");
    assert!(calls > 1);
}

/// A further transport, with "b" as its peer.
fn with_peer(world: &World) -> Result<Transport> {
    let transport = create(BackendChoice::Nixl, NixlConfig::default())?;
    world.b.add_to_small(&transport, "b");
    let id = write(&transport, "b", &[1], &[9]);
    assert_eq!(finish(&transport, &[id])[&id], Ok(()));
    Ok(transport)
}

fn create_and_close() {
    let mut world = World::new(BLOCKS, BLOCK);
    let made = std::cell::RefCell::new(None);
    every_call(
        &mut world,
        "create",
        &mut |_| {
            let created = create(BackendChoice::Nixl, NixlConfig::default())?;
            *made.borrow_mut() = Some(created);
            Ok(())
        },
        &mut |world| {
            let created = made.take().unwrap();
            world.b.add_to_small(&created, "b");
            let id = write(&created, "b", &[1], &[9]);
            assert_eq!(finish(&created, &[id])[&id], Ok(()));
            created.close(PATIENCE).unwrap();
        },
    );
    // A close cannot be refused.
    let mut calls = 0;
    loop {
        let before = world.proxy.holdings();
        let transport = with_peer(&world).unwrap();
        world.proxy.plan(&format!("* skip={calls} answer=-2"));
        assert_eq!(transport.close(PATIENCE), Ok(()), "call {calls}");
        let fired = world.proxy.fired();
        drop(transport);
        world.proxy.plan("");
        assert_eq!(world.proxy.holdings(), before, "call {calls}");
        world.moves("c");
        if fired == 0 {
            break;
        }
        calls += 1;
    }
    assert!(calls > 10, "{calls}");
    world.end();
}

fn add_and_remove() {
    let mut world = World::new(BLOCKS, BLOCK);
    let add = |world: &mut World| world.b.try_add_to(&world.transport, "d");
    let remove = &mut |world: &mut World| {
        let id = write(&world.transport, "d", &[3], &[5]);
        assert_eq!(world.ends(id), Ok(()));
        assert!(holds(world.b.memory.block(5, BLOCK), world.seed, 3));
        world.transport.remove_peer("d").unwrap();
        assert!(poll(&world.transport).is_empty());
    };
    every_call(&mut world, "add", &mut |world| add(world), remove);
    every_call(
        &mut world,
        "add twice",
        &mut |world| add(world).and_then(|()| add(world)),
        remove,
    );
    every_call(
        &mut world,
        "add and remove",
        &mut |world| add(world).and_then(|()| world.transport.remove_peer("d")),
        &mut |_| {},
    );
    world.end();
}

fn transfers() {
    let mut world = World::new(BLOCKS, BLOCK);
    for direction in [Direction::Write, Direction::Read] {
        // One that is posted at once, and one that waits for polls.
        for count in [1, BLOCKS as u32 / 2] {
            every_call(
                &mut world,
                &format!("{direction:?} of {count}"),
                &mut |world| copy(world, direction, count),
                &mut |_| {},
            );
        }
    }
    every_call(&mut world, "posted read", &mut posted_read, &mut |_| {});
    world.end();
}

fn copy(world: &mut World, direction: Direction, count: u32) -> Result<()> {
    world.seed += 1;
    let (from, to) = match direction {
        Direction::Write => (&world.memory, &world.b.memory),
        Direction::Read => (&world.b.memory, &world.memory),
    };
    from.fill(world.seed, BLOCK);
    to.bytes().fill(0);
    let result = world.ends(world.submit(direction, count));
    for index in 0..BLOCKS as u32 {
        let block = to.block(index, BLOCK);
        assert!(match result {
            _ if index >= count => is_zero(block),
            Ok(()) => holds(block, world.seed, index),
            Err(_) => landed_in_part(block, world.seed, index),
        });
    }
    result.map_err(|status| Error::new(status, "as polled"))
}

fn posted_read(world: &mut World) -> Result<()> {
    world.seed += 1;
    world.b.memory.fill(world.seed, BLOCK);
    let message = world.seed.to_le_bytes();
    let id = world.transport.post_read("b", &[5], &[6], &message)?;
    let start = Instant::now();
    let result = loop {
        match world.transport.read_state(id)? {
            ReadState::Running => assert!(start.elapsed() < PATIENCE),
            ReadState::Ended(result) => break result,
        }
    };
    world.transport.release_read(id)?;
    // A message of a read that failed would be the first to come after the next one.
    if result.is_ok() {
        assert!(holds(world.memory.block(5, BLOCK), world.seed, 6));
        comes_to_b(world, &[message.to_vec()]);
    }
    result.map_err(|status| Error::new(status, "as asked"))
}

/// Exactly these messages are the next to come to "b".
fn comes_to_b(world: &mut World, expected: &[Vec<u8>]) {
    let start = Instant::now();
    let mut came = Vec::new();
    while came.len() < expected.len() {
        assert!(start.elapsed() < PATIENCE, "{came:?} of {expected:?}");
        came.extend(world.b.messages());
    }
    assert_eq!(came, expected);
}

fn messages() {
    let mut world = World::new(BLOCKS, BLOCK);
    every_call(
        &mut world,
        "send",
        &mut |world| {
            world.seed += 1;
            let mut sent = Vec::new();
            for part in 0..3u8 {
                let message = [&world.seed.to_le_bytes()[..], &[part]].concat();
                let start = Instant::now();
                while let Err(error) = world.transport.send("b", &message) {
                    assert_eq!(error.status, Status::Busy, "{error}");
                    assert!(start.elapsed() < PATIENCE, "{error}");
                    assert!(poll(&world.transport).is_empty());
                }
                sent.push(message);
            }
            comes_to_b(world, &sent);
            Ok(())
        },
        &mut |_| {},
    );
    // The other way: what comes in.
    let metadata = hex(&world.transport.agent_metadata().unwrap());
    let base = world.memory.base();
    world.b.tell(&format!("add {metadata} {base} {BLOCKS}"));
    expect_while_polling(&world.transport, &mut world.b, "added");
    every_call(
        &mut world,
        "receive",
        &mut |world| {
            world.seed += 1;
            let sent = [world.seed.to_le_bytes(), (!world.seed).to_le_bytes()];
            for message in sent {
                world.b.tell(&format!("send {}", hex(&message)));
            }
            let start = Instant::now();
            let mut came = Vec::new();
            while came.len() < sent.len() {
                assert!(start.elapsed() < PATIENCE, "{came:?} of {sent:?}");
                let mut take = |message: &Message| {
                    assert_eq!(&*message.sender, "b");
                    came.push(message.bytes.clone());
                    true
                };
                world.transport.receive(10, &mut take)?;
            }
            assert_eq!(came, sent);
            for _ in sent {
                expect_while_polling(&world.transport, &mut world.b, "sent");
            }
            Ok(())
        },
        &mut |_| {},
    );
    world.end();
}
