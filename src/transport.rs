//! One transport: region, peers, ledger and backend, tied together under one lock.
//!
//! Every public method may be called from any thread. None of them waits for a peer, except
//! [`wait`](Transport::wait) and [`close`](Transport::close), which give the lock up while they do.

mod inner;
mod pull;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use parking_lot::{Condvar, Mutex, MutexGuard};
use rustc_hash::FxHashSet;

use crate::backend::open;
use crate::backend::{Backend, ConnId, Direction, Kind, OpId, Start};
use crate::clock::Clock;
use crate::error::{Error, Quoted, Result, Status, fail};
use crate::extents::Runs;
use crate::fingerprint;
use crate::layout::Layout;
use crate::ledger::{Counts, Terms};
use crate::process::Home;
use crate::region::{LocalRegion, Region};

pub use crate::backend::nixl::NixlConfig;
pub use crate::backend::open::BackendChoice;
pub use crate::ledger::{Completion, XferId};
use inner::{GivenUp, Inner};
pub use pull::ReadState;

/// File descriptor that backs the region. It is duplicated, not taken.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct RegionFd {
    /// The descriptor.
    pub fd: i32,
    /// Where the region starts in it.
    pub offset: u64,
}

/// Everything that [`Transport::create`] wants to know.
#[derive(Clone, Debug)]
pub struct Config {
    /// The caller's memory, which outlives the transport.
    pub region: LocalRegion,
    /// What backs it, if peers may map it.
    pub region_fd: Option<RegionFd>,
    /// Which backend.
    pub backend: BackendChoice,
    /// How to find and run NIXL, if it is used.
    pub nixl: NixlConfig,
    /// Unique name of this node; `None`: generated.
    pub agent_name: Option<String>,
    /// Model configuration; `None`: no fingerprint.
    pub config_json: Option<String>,
    /// Work that one poll does before it returns.
    pub poll_budget: Duration,
}

/// What to do with a transfer that the caller does not want any more.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum CancelMode {
    /// Forget it now; what cannot be stopped drains.
    Immediate,
    /// Forget it only if it has stopped.
    Wait,
}

/// Counters of a transport.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Stats {
    /// Of transfers.
    pub transfers: Counts,
    /// Of messages.
    pub messages: MessageCounts,
    /// Calls of poll and wait.
    pub polls: u64,
    /// Registered peers.
    pub peers: u64,
}

/// Counters of messages.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct MessageCounts {
    /// On their way, or there.
    pub sent: u64,
    /// Handed to the caller.
    pub received: u64,
    /// How often there was no room for one, here or at a peer, and what was thrown away because no
    /// transport would send it.
    pub refused: u64,
}

/// One transport.
pub struct Transport {
    region: Region,
    fingerprint: String,
    agent_name: String,
    kind: Kind,
    poll_budget: Duration,
    /// The process that made it: a forked child shares nothing with it but a copy of this memory.
    home: Home,
    /// Set by the first `close`; nothing but `close` is accepted after it.
    closing: AtomicBool,
    /// Set after a panic: the state behind the lock is not to be trusted.
    broken: AtomicBool,
    /// Signalled when work or completions have come, for threads in `wait`.
    news: Condvar,
    clock: Clock,
    /// Always there; `drop` alone takes it.
    inner: Option<Mutex<Inner>>,
}

/// Lists of so many blocks are merged in less time than it takes to give up the lock and take it again
/// when others want it.
const SHORT_LIST: usize = 256;

/// So often longer lists are merged while others have the lock.
const MOST_MERGES: u32 = 3;

/// Longest nap of a thread that waits for the backend while it closes.
const CLOSE_NAP: Duration = Duration::from_millis(1);

impl Transport {
    /// A transport over `config.region`.
    pub fn create(config: Config) -> Result<Transport> {
        let fingerprint = fingerprint::compute(config.config_json.as_deref())?;
        let agent_name = match config.agent_name.clone() {
            Some(name) => name,
            None => generated_name()?,
        };
        let fd = config.region_fd.map(|backing| (backing.fd, backing.offset));
        let backend = open::open(config.backend, config.region, fd, &config.nixl, &agent_name)?;
        let clock = Clock::default();
        Ok(Transport::over(
            backend,
            config,
            fingerprint,
            agent_name,
            clock,
        ))
    }

    fn over(
        backend: Box<dyn Backend>,
        config: Config,
        fingerprint: String,
        agent_name: String,
        clock: Clock,
    ) -> Transport {
        Transport {
            region: config.region.blocks(),
            fingerprint,
            agent_name,
            kind: backend.kind(),
            poll_budget: config.poll_budget,
            home: Home::here(),
            closing: AtomicBool::new(false),
            broken: AtomicBool::new(false),
            news: Condvar::new(),
            inner: Some(Mutex::new(Inner::new(backend, clock.clone()))),
            clock,
        }
    }

    /// The local blocks.
    pub fn region(&self) -> Region {
        self.region
    }

    /// 16 hex digits, or "".
    pub fn fingerprint(&self) -> &str {
        &self.fingerprint
    }

    /// Name of this node.
    pub fn agent_name(&self) -> &str {
        &self.agent_name
    }

    /// The backend in use.
    pub fn backend_kind(&self) -> Kind {
        self.kind
    }

    /// What a peer needs to add this transport.
    pub fn agent_metadata(&self) -> Result<Vec<u8>> {
        Ok(self.enter()?.backend.metadata().to_vec())
    }

    /// Registers a peer, in place of an older registration of the same id.
    ///
    /// The new connection is made before the old one is given up, so a refused add changes nothing.
    pub fn add_peer(
        &self,
        peer_id: &str,
        metadata: &[u8],
        base: u64,
        num_blocks: u64,
        block_len: u64,
    ) -> Result<()> {
        self.check()?;
        if block_len != self.region.block_len() {
            fail!(
                Incompatible,
                "block_len of peer {} is {block_len}, but the local one is {}",
                Quoted(peer_id),
                self.region.block_len()
            );
        }
        let blocks = Region::new(base, num_blocks, block_len)
            .map_err(|error| error.context(format_args!("peer {}", Quoted(peer_id))))?;
        self.connect(peer_id, metadata, blocks.into())
    }

    fn connect(&self, peer_id: &str, metadata: &[u8], blocks: Layout) -> Result<()> {
        let mut inner = self.enter()?;
        inner.last_conn += 1;
        let conn = ConnId(inner.last_conn);
        let replaces = inner.peers.get(peer_id).ok().map(|old| old.conn);
        inner
            .backend
            .connect(conn, metadata, &blocks, replaces)
            .map_err(|error| error.context(format_args!("peer {}", Quoted(peer_id))))?;
        if inner.remove_peer(peer_id) {
            self.news.notify_all();
        }
        inner.peers.insert(peer_id, conn, blocks);
        Ok(())
    }

    /// Ends the registration of a peer; its transfers are cancelled and surface when they stopped.
    pub fn remove_peer(&self, peer_id: &str) -> Result<()> {
        let mut inner = self.enter()?;
        inner.peers.get(peer_id)?;
        inner.remove_peer(peer_id);
        self.news.notify_all();
        Ok(())
    }

    /// `Ok` for a healthy peer, otherwise why it cannot be used.
    pub fn peer_status(&self, peer_id: &str) -> Result<()> {
        let inner = self.enter()?;
        match inner.peers.get(peer_id)?.fault() {
            None => Ok(()),
            Some(fault) => Err(fault
                .clone()
                .context(format_args!("peer {}", Quoted(peer_id)))),
        }
    }

    /// Starts a transfer between local blocks and the peer's.
    pub fn submit(
        &self,
        direction: Direction,
        peer_id: &str,
        local_idxs: &[u32],
        remote_idxs: &[u32],
        user_data: u64,
    ) -> Result<XferId> {
        let lists = (local_idxs, remote_idxs);
        self.start(direction, peer_id, lists, user_data, None)
    }

    /// `hold`: the transfer belongs to a handle, and this message goes when it is done, if it has
    /// bytes.
    fn start(
        &self,
        direction: Direction,
        peer_id: &str,
        (local_idxs, remote_idxs): (&[u32], &[u32]),
        user_data: u64,
        hold: Option<&[u8]>,
    ) -> Result<XferId> {
        // Merging takes as long as the lists are long: other threads go on meanwhile. If they remove or
        // replace the peer, it is done again, but not for ever.
        let mut unlocked = match local_idxs.len() {
            ..=SHORT_LIST => 0,
            _ => MOST_MERGES,
        };
        let (mut inner, mut to, mut runs);
        loop {
            inner = self.enter()?;
            let peer = inner.peers.usable(peer_id)?;
            to = (peer.key, peer.conn);
            runs = Runs::towards(peer.layout.clone());
            if unlocked == 0 {
                runs.merge(local_idxs, remote_idxs, &self.region)?;
                break;
            }
            unlocked -= 1;
            drop(inner);
            runs.merge(local_idxs, remote_idxs, &self.region)?;
            inner = self.enter()?;
            if inner.peers.is_usable(to.1) {
                break;
            }
            drop(inner);
        }
        let terms = Terms {
            peer: to.0,
            conn: to.1,
            direction,
            bytes: runs.bytes(),
            user_data,
            held: hold.is_some(),
        };
        let op = OpId(inner.ledger.next_id());
        let started = match inner.backend.start(terms.conn, op, direction, &mut runs) {
            Ok(started) => started,
            Err(error) => {
                // What this process lacks is not the peer's fault.
                if error.status != Status::NoMemory {
                    inner.judge(terms.conn, &Err(error.clone()));
                }
                return Err(error.context(format_args!("peer {}", Quoted(peer_id))));
            }
        };
        let id = inner.ledger.open(terms);
        if let Some(message) = hold.filter(|message| !message.is_empty()) {
            inner.outgoing.bind(id, message);
        }
        if started == Start::Done {
            inner.settle(op, Ok(()));
            inner.send_waiting(terms.conn);
        }
        self.news.notify_all();
        Ok(id)
    }

    /// Drives progress, then hands at most `cap` completions of `peer_id` (`None`: of all) to `sink`.
    /// Returns how many.
    pub fn poll(
        &self,
        peer_id: Option<&str>,
        cap: usize,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<usize> {
        let mut inner = self.enter()?;
        inner.polls += 1;
        self.drive(&mut inner);
        let count = inner.report(peer_id, cap, sink);
        // A thread in `wait` that lives in this call's shadow gets its turn.
        MutexGuard::unlock_fair(inner);
        Ok(count)
    }

    /// Like [`poll`](Self::poll), until something surfaces or `timeout` is over. With `cap` 0 it
    /// returns when something could surface.
    pub fn wait(
        &self,
        peer_id: Option<&str>,
        cap: usize,
        timeout: Duration,
        sink: &mut dyn FnMut(Completion),
    ) -> Result<usize> {
        let deadline = self.clock.now() + timeout;
        let mut inner = self.enter()?;
        inner.polls += 1;
        loop {
            self.drive(&mut inner);
            let count = inner.report(peer_id, cap, sink);
            if count > 0 || (cap == 0 && inner.has_ready(peer_id)) {
                return Ok(count);
            }
            let left = deadline.saturating_duration_since(self.clock.now());
            if left.is_zero() {
                return Ok(0);
            }
            match inner.idle_for() {
                // Work is left: other threads get their turn between two slices of it.
                None => MutexGuard::bump(&mut inner),
                Some(nap) => {
                    self.clock.wait(&self.news, &mut inner, nap.min(left));
                }
            }
            self.check()?;
        }
    }

    /// Gives up transfers. Returns those that are still in flight: none with `Immediate`.
    pub fn cancel(&self, ids: &[XferId], mode: CancelMode) -> Result<Vec<XferId>> {
        let mut inner = self.enter()?;
        // An id is asked about once: a second answer could contradict the first. First answers of
        // "no" alone can be contradicted: what was given up is unknown the second time.
        let mut seen = FxHashSet::default();
        let mut still = Vec::new();
        // What runs bounds what can stay, however many ids there are.
        let most = ids.len().min(inner.ledger.counts().inflight as usize);
        if seen.try_reserve(most).is_err() || still.try_reserve_exact(most).is_err() {
            fail!(NoMemory, "no memory for a list of {most} transfers");
        }
        for id in ids {
            if !seen.contains(id) && inner.give_up(*id, mode) == GivenUp::No {
                seen.insert(*id);
                still.push(*id);
            }
        }
        Ok(still)
    }

    /// The counters. They also answer after [`close`](Self::close).
    pub fn stats(&self) -> Result<Stats> {
        self.check_process()?;
        let mut inner = self.lock();
        inner.count_refused();
        Ok(Stats {
            transfers: inner.ledger.counts(),
            messages: inner.messages,
            polls: inner.polls,
            peers: inner.peers.count() as u64,
        })
    }

    /// Refuses new work, cancels what is in flight and waits until nothing touches the region any
    /// more. Status `Timeout`: something still could; call again. Idempotent.
    pub fn close(&self, timeout: Duration) -> Result<()> {
        self.check_process()?;
        self.check_sound()?;
        let deadline = self.clock.now() + timeout;
        self.closing.store(true, Ordering::SeqCst);
        let mut nap = Duration::from_micros(20);
        loop {
            // A call in another thread may be held up in the kernel: that must not hold up this one.
            let step = match self.mutex().try_lock_until(deadline) {
                Some(mut inner) => inner.close_step(self.poll_budget),
                None => Err(Error::new(Status::Timeout, "another call is still at work")),
            };
            // Those in `wait` look at the flag under the lock, then sleep. Having had the lock makes
            // sure that none is between the two.
            self.news.notify_all();
            let obstacle = match step {
                Ok(()) => return Ok(()),
                Err(error) => error,
            };
            let left = deadline.saturating_duration_since(self.clock.now());
            if left.is_zero() {
                return Err(
                    obstacle.context(format_args!("not closed after {} ms", timeout.as_millis()))
                );
            }
            self.clock.sleep(nap.min(left));
            nap = (nap * 2).min(CLOSE_NAP);
        }
    }

    /// After a panic inside a call: everything is refused from now on.
    pub fn mark_broken(&self) {
        self.broken.store(true, Ordering::SeqCst);
        // As in `close`.
        drop(self.lock());
        self.news.notify_all();
    }

    fn enter(&self) -> Result<MutexGuard<'_, Inner>> {
        self.check()?;
        let inner = self.lock();
        // Another thread may have closed while this one waited.
        self.check_open()?;
        Ok(inner)
    }

    fn mutex(&self) -> &Mutex<Inner> {
        self.inner.as_ref().expect("only drop takes it")
    }

    fn lock(&self) -> MutexGuard<'_, Inner> {
        self.mutex().lock()
    }

    fn check(&self) -> Result<()> {
        self.check_process()?;
        self.check_open()
    }

    fn check_open(&self) -> Result<()> {
        self.check_sound()?;
        if self.closing.load(Ordering::SeqCst) {
            fail!(Closed, "the transport is closed");
        }
        Ok(())
    }

    fn check_process(&self) -> Result<()> {
        if !self.home.is_here() {
            fail!(
                Forked,
                "the transport belongs to the process that made it, and this is a forked child: create one here"
            );
        }
        Ok(())
    }

    fn check_sound(&self) -> Result<()> {
        if self.broken.load(Ordering::SeqCst) {
            fail!(
                Internal,
                "an earlier call failed inside the library; destroy the transport"
            );
        }
        Ok(())
    }

    fn drive(&self, inner: &mut Inner) {
        if inner.pump(self.poll_budget) {
            self.news.notify_all();
        }
    }
}

impl Drop for Transport {
    fn drop(&mut self) {
        let Some(inner) = self.inner.take() else {
            return;
        };
        // A thread of the parent was inside a call: what it left half changed must not be touched.
        if !self.home.is_here() && inner.is_locked() {
            return std::mem::forget(inner);
        }
        let mut inner = inner.into_inner();
        // In a forked child there is nothing to close: dropping gives back what the child has.
        if self.home.is_here() && !inner.closed && inner.close_step(Duration::ZERO).is_err() {
            inner.backend.force_close();
        }
    }
}

/// Whether a peer can be called so by callers, in C too.
fn is_name(text: &str) -> bool {
    !text.is_empty() && !text.contains('\0')
}

fn generated_name() -> Result<String> {
    let mut random = [0u8; 16];
    getrandom::fill(&mut random).map_err(|error| {
        Error::new(
            Status::Unavailable,
            format!("no random bytes for a name: {error}"),
        )
    })?;
    Ok(format!("dt-{:032x}", u128::from_be_bytes(random)))
}

#[cfg(test)]
pub(crate) mod tests;
