//! Sequences of calls as a C program could make them, right and wrong ones, on a few LOCAL transports
//! of one process with real memory. A small model knows what each call may answer, and what the
//! memory holds.
//!
//! Nothing is asked for that the header forbids: no handle is used after `dt_destroy`, and a pointer
//! that is not NULL, misaligned or of an impossible length points to what it should.
//!
//! - `world`: the transports, their memory, and the transfers between them.
//! - `wrong`: arguments as they should not be, and what they make of a call.
//! - `peers`, `transfers`, `messages`, `other`: the calls.

mod messages;
mod other;
mod peers;
mod transfers;
mod world;
mod wrong;

use crate::fuzz::Input;
use world::World;

/// Enough for everything to happen, and to meet everything else.
const MOST_CALLS: usize = 200;

/// Choices of a program.
pub fn calls(data: &[u8]) {
    let before = open_files();
    let mut input = Input::new(data);
    let mut world = World::new(&mut input);
    for _ in 0..MOST_CALLS {
        if input.is_empty() {
            break;
        }
        world.call(&mut input);
        world.check_memory();
    }
    world.end();
    assert_eq!(open_files(), before, "file descriptors");
}

/// How many files are open; other tests of this process have their own.
fn open_files() -> Option<usize> {
    let files = || std::fs::read_dir("/proc/self/fd").ok().map(Iterator::count);
    cfg!(fuzzing).then(files).flatten()
}

impl World {
    fn call(&mut self, input: &mut Input) {
        match input.below(32) {
            0..=2 => self.add_peer(input),
            3 => self.add_agent(input),
            4 => self.import_handshake(input),
            5 => self.remove_peer(input),
            6 => self.peer_status(input),
            7..=11 => self.submit(input),
            12 | 13 => self.post_read(input),
            14 | 15 => self.poll(input),
            16 => self.wait(input),
            17 => self.cancel(input),
            18 => self.check_state(input),
            19 => self.release(input),
            20 | 21 => self.send(input),
            22 | 23 => self.receive(input),
            24 => self.stats(input),
            25 => self.fill_buffer(input),
            26 => self.ask(input),
            27 => self.fingerprint(input),
            28 => self.create_wrongly(input),
            29 => self.create_another(input),
            30 => self.change_blocks(input),
            _ => self.close_or_destroy(input),
        }
    }
}
