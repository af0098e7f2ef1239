//! How many agents this process has, because a fork takes UCX's thread away from them.
//!
//! UCX has one thread for all its users in a process, which accepts the connections of peers. A
//! child that is forked while there are any has UCX's memory, which says that the thread runs, and
//! no thread: an agent made there can be created and can write, but nobody reaches it.

use parking_lot::Mutex;

use crate::error::{Result, fail};
use crate::process::Home;

/// Where the agents were made, and how many of them there are.
static USERS: Mutex<Option<(Home, usize)>> = Mutex::new(None);

/// One agent, as long as it lives. In a forked child it is not dropped but forgotten.
pub struct User(());

impl User {
    /// Unless the parent process left its own behind.
    pub fn join() -> Result<User> {
        let mut users = USERS.lock();
        match &mut *users {
            Some((home, count)) if home.is_here() => *count += 1,
            Some((_, count)) if *count > 0 => fail!(
                Unavailable,
                "NIXL: this process was forked while its parent had NIXL transports, and UCX does not work after that; close all of them before the fork, or call exec after it"
            ),
            users => *users = Some((Home::here(), 1)),
        }
        Ok(User(()))
    }
}

impl Drop for User {
    fn drop(&mut self) {
        if let Some((_, count)) = &mut *USERS.lock() {
            *count -= 1;
        }
    }
}
