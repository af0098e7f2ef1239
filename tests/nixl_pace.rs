//! How often NIXL is driven. Over sockets a peer's bytes wait for it.

mod nixl_support;

use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[("a_poll_without_work_drives", a_poll_without_work_drives)];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios_behind_proxy! {
    a_poll_without_work_drives_default: a_poll_without_work_drives Default;
    a_poll_without_work_drives_tcp: a_poll_without_work_drives Tcp;
}

/// However fast polls come.
fn a_poll_without_work_drives() {
    let mut world = World::new(8, 4096);
    world.moves("b");
    let before = world.proxy.count("get_notifs");
    for _ in 0..1000 {
        world.transport.poll(None, 1, &mut |_| ()).unwrap();
    }
    assert_eq!(world.proxy.count("get_notifs") - before, 1000);
    world.end();
}
