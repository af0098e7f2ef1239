//! Whether UCX still listens. When a peer connects while this process has no file descriptor left, UCX
//! closes the socket on which it listens, prints nothing that its user sees, and never opens it again:
//! from then on new peers wait for ever. That can only be told. And the next agent is kept from what UCX has
//! left of that socket.

use std::fs::File;
use std::net::SocketAddr;
use std::os::fd::{AsRawFd, BorrowedFd, RawFd};
use std::time::{Duration, Instant};

use rustix::io::fcntl_dupfd_cloexec;
use rustix::net::getsockname;
use rustix::net::sockopt::socket_acceptconn;

use super::unsent::descriptors;
use crate::log::log;

/// It costs two system calls for each network interface.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// The sockets on which one agent can be reached.
#[derive(Default)]
pub struct Listeners {
    sockets: Vec<(RawFd, u16)>,
    /// The numbers of those that are gone.
    lost: Vec<RawFd>,
    looked: Option<Instant>,
}

impl Listeners {
    /// Those that this process has at `ports`, which are in the agent's address. There are none where
    /// UCX connects by other means, or where the system does not say.
    pub fn at(ports: &[u16]) -> Listeners {
        let all = descriptors().into_iter().flatten();
        let sockets = all.filter_map(|fd| Some((fd, port(fd)?)));
        Listeners {
            sockets: sockets.filter(|(_, port)| ports.contains(port)).collect(),
            lost: Vec::new(),
            looked: None,
        }
    }

    /// Tells the log when one is gone.
    pub fn look(&mut self, now: Instant) {
        if self.is_deaf(now) {
            log!(
                Error,
                "NIXL: UCX has closed a socket on which it listened, as it does when a peer connects and this process \
                 has no file descriptor left: new peers may not reach this transport any more; raise RLIMIT_NOFILE, \
                 close the transport and create it again"
            );
        }
    }

    /// The engine is destroyed by `destroy`, and closes the others. A number that it has used for something
    /// else since is free after that.
    pub fn end(&mut self, destroy: impl FnOnce()) {
        self.miss();
        destroy();
        std::mem::take(&mut self.lost).into_iter().for_each(hold);
    }

    fn miss(&mut self) {
        let lost = &mut self.lost;
        self.sockets.retain(|(fd, at)| {
            let is_there = port(*fd) == Some(*at);
            if !is_there {
                lost.push(*fd);
            }
            is_there
        });
    }

    /// True, once and never again, when one is gone.
    fn is_deaf(&mut self, now: Instant) -> bool {
        if self.looked.is_some_and(|looked| now < looked + LOOK_EVERY) {
            return false;
        }
        self.looked = Some(now);
        let told = !self.lost.is_empty();
        self.miss();
        !self.lost.is_empty() && !told
    }
}

/// Keeps the number of a socket that is gone from being given out again, as long as the process lives. UCX
/// still has what watched that socket, under its number, and fails to start when a new socket gets it.
fn hold(number: RawFd) {
    let held = File::open("/dev/null").and_then(|file| Ok(fcntl_dupfd_cloexec(&file, number)?));
    // Another number: that one is in use.
    if let Ok(held) = held
        && held.as_raw_fd() == number
    {
        std::mem::forget(held);
    }
}

/// Where a socket listens; `None` for what does not, or is not there.
fn port(fd: RawFd) -> Option<u16> {
    // SAFETY: it is asked two questions, and not kept. If UCX has closed it, or it is no socket, they fail.
    let socket = unsafe { BorrowedFd::borrow_raw(fd) };
    // A connection that was accepted has its listener's port.
    if !socket_acceptconn(socket).unwrap_or(false) {
        return None;
    }
    let address = SocketAddr::try_from(getsockname(socket).ok()?);
    Some(address.ok()?.port())
}

#[cfg(test)]
mod tests {
    use std::net::{TcpListener, TcpStream};
    use std::os::fd::OwnedFd;

    use super::*;

    #[test]
    fn a_listener_is_missed_when_it_is_gone() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let other = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap();
        let _client = TcpStream::connect(at).unwrap();
        let (accepted, _) = listener.accept().unwrap();
        let mut listeners = Listeners::at(&[at.port(), 1]);
        assert_eq!(listeners.sockets, [(listener.as_raw_fd(), at.port())]);
        assert!(Listeners::at(&[]).sockets.is_empty());
        let mut now = Instant::now();
        assert!(!listeners.is_deaf(now));
        // What has its number now is a connection with its port, or another listener.
        let mut place: OwnedFd = listener.into();
        rustix::io::dup2(&accepted, &mut place).unwrap();
        assert!(!listeners.is_deaf(now), "it was looked at a moment ago");
        now += LOOK_EVERY;
        assert!(listeners.is_deaf(now));
        assert!(!listeners.is_deaf(now + LOOK_EVERY), "it was told");
        let number = other.as_raw_fd();
        let mut listeners = Listeners::at(&[other.local_addr().unwrap().port()]);
        listeners.sockets.push((number, at.port()));
        assert!(listeners.is_deaf(now + LOOK_EVERY * 2));
    }

    #[test]
    fn the_number_of_one_that_is_gone_is_not_given_out_again() {
        let listener = TcpListener::bind("127.0.0.1:0").unwrap();
        let at = listener.local_addr().unwrap().port();
        // One that no other test's files get meanwhile.
        let mut far = fcntl_dupfd_cloexec(&listener, 700).unwrap();
        let number = far.as_raw_fd();
        let mut listeners = Listeners::at(&[at]);
        // It has the number meanwhile, and is no listener.
        let client = TcpStream::connect(listener.local_addr().unwrap()).unwrap();
        rustix::io::dup2(&client, &mut far).unwrap();
        drop(listener);
        listeners.end(|| drop(far));
        // SAFETY: nothing is closed: it asks for a flag.
        let flags = unsafe { libc::fcntl(number, libc::F_GETFD) };
        assert_eq!(flags, libc::FD_CLOEXEC);
        assert!(port(number).is_none());
    }
}
