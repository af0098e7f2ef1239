//! One NIXL agent with one backend and the transport's memory: the few calls that are needed of it,
//! in the terms of this crate. What NIXL leaves to its caller is settled here:
//!
//! - A request is never given back while it runs ([`Request`]).
//! - What a message's sender is called is the sender's word, and can be anything.
//! - NIXL folds nearly all errors into one. A peer is known to be gone when NIXL has dropped the
//!   metadata that was loaded for it ([`Engine::knows`]).

use std::cell::UnsafeCell;
use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;

use nixl_sys::{
    Agent, AgentConfig, MemType, MemoryRegion, NixlDescriptor, NixlError, NotificationMap, OptArgs,
    Params, RegistrationHandle, ThreadSync, XferDescList, XferOp, XferRequest, XferStatus,
};
use rustc_hash::FxHashSet;

use super::NixlConfig;
use super::config_file;
use super::coverage::Coverage;
use super::exit::{self, Step};
use super::mail::Inbox;
use super::unsent::EventSets;
use super::users::User;
use crate::backend::Direction;
use crate::error::{Error, Result, Status, fail};
use crate::extents::Piece;
use crate::region::{LocalRegion, Region};

/// The most senders whose messages are taken at once. To look for one costs time with each of them.
const MOST_SENDERS: usize = 1024;

/// Pause of NIXL's progress thread when nothing happens. NIXL's own default, 0, is a spin; with 500 it
/// still takes 2.4 % of a core. With 8000 large writes over sockets took three times as long now and then.
const PROGRESS_DELAY_US: u64 = 5000;

/// A posted transfer. With UCX it ends when its endpoint was flushed, so after all that was posted to
/// the peer before it. Dropping it gives it back to NIXL, which is only right when it has ended, or
/// when the whole engine is about to go: NIXL forgets a running request, and its bytes keep moving.
pub struct Request(XferRequest);

/// What became of a request when it was posted or asked for.
pub enum State<T> {
    /// It goes on.
    Running(T),
    /// The bytes have arrived.
    Done,
    /// It ended, or was refused, with NIXL's word for it.
    Failed(String),
}

/// The agent. Fields go in this order: what was registered first, then the agent, then what it may
/// write to until it is gone.
pub struct Engine {
    registration: Registration,
    scratch: Registration,
    local: XferDescList<'static>,
    remote: XferDescList<'static>,
    inbox: NotificationMap,
    agent: Agent,
    event_sets: EventSets,
    /// Where probes read to; see `scratch`.
    page: Page,
    _user: User,
}

// SAFETY: NIXL's objects are tied to no thread, and `&mut` or the transport's lock lets only one at
// a time use them. The agent itself is `Send` already; the lists and the inbox are plain containers.
unsafe impl Send for Engine {}

/// What UCX shall do otherwise than by itself. The user's environment has precedence; NIXL sees to that.
fn ucx_settings() -> String {
    // Otherwise loading a peer waits in connect() for an address that does not answer.
    let mut settings = "TCP_CONN_NB=y".to_owned();
    // What goes in several segments is dropped by a receiver that has given up its own endpoint to the
    // sender, and nobody is told. No segment is longer than what receivers are prepared for by default,
    // this library or not; a user who changes that chooses both.
    if std::env::var_os("UCX_TCP_RX_SEG_SIZE").is_none() {
        settings.push_str(",TCP_TX_SEG_SIZE=64k");
    }
    settings
}

impl Engine {
    /// An agent called `name` that has registered `region`, and its metadata.
    pub fn create(
        name: &str,
        region: LocalRegion,
        config: &NixlConfig,
    ) -> Result<(Engine, Vec<u8>)> {
        let user = User::join()?;
        config_file::check()?;
        let plugin = config.plugin();
        let agent = Agent::new_configured(
            name,
            &AgentConfig {
                enable_prog_thread: config.progress_thread,
                enable_listen_thread: false,
                // The transport's lock is held around every call.
                thread_sync: ThreadSync::None,
                pthr_delay_us: PROGRESS_DELAY_US,
                capture_telemetry: false,
                ..AgentConfig::default()
            },
        )
        .map_err(|error| no_agent(name, &error))?;
        // If the exit has begun by now, what the agent stands on is gone. Later, the exit waits.
        let agent = exit::watch_with(Step::Agent, agent)?;

        let mut params = Vec::new();
        if config.num_threads > 0 {
            params.push(("num_threads", config.num_threads.to_string()));
        }
        if plugin == "UCX" {
            params.push(("engine_config", ucx_settings()));
        }
        let (backend, event_sets) =
            EventSets::of(config.progress_thread || config.num_threads > 0, || {
                Params::from(params).and_then(|params| agent.create_backend(plugin, &params))
            });
        let backend = backend.map_err(|error| no_backend(plugin, &error))?;
        let (agent, backend) = exit::watch_with(Step::Backend, (agent, backend))?;

        let mut hint = OptArgs::new().map_err(|error| stage("allocate", &error))?;
        hint.add_backend(&backend)
            .map_err(|error| stage("name the backend", &error))?;
        let memory = Memory {
            base: region.blocks().base() as usize,
            bytes: region.blocks().bytes() as usize,
        };
        let registration = agent
            .register_memory(&memory, Some(&hint))
            .map(Registration)
            .map_err(|error| {
                stage(
                    format_args!(
                        "register {} bytes at {:#x} with {plugin}",
                        region.blocks().bytes(),
                        region.blocks().base()
                    ),
                    &error,
                )
            })?;
        let metadata = agent
            .get_local_md()
            .map_err(|error| stage("export the agent's metadata", &error))?;
        // Only now: what peers are told is the transport's memory and nothing else.
        let page = Page(Box::new(UnsafeCell::new([0; 4096])));
        let scratch = agent
            .register_memory(&page.memory(), Some(&hint))
            .map(Registration)
            .map_err(|error| stage("register a page of its own", &error))?;
        let list =
            || XferDescList::new(MemType::Dram).map_err(|error| stage("allocate a list", &error));
        let engine = Engine {
            registration,
            scratch,
            local: list()?,
            remote: list()?,
            inbox: NotificationMap::new().map_err(|error| stage("allocate an inbox", &error))?,
            agent,
            event_sets,
            page,
            _user: user,
        };
        Ok((engine, metadata))
    }

    /// An agent of this worker address will be connected to, or it is this one's own.
    pub fn know(&mut self, address: &[u8]) {
        self.event_sets.know(address);
    }

    /// Loads checked blobs whose agent is called `alias`: how to reach it, then the whole.
    ///
    /// When NIXL refuses the memory in a blob that is new to it, it forgets the agent but not the
    /// endpoint, which then stays as long as the engine. Of an agent that it knows already it forgets
    /// nothing, so that it can be unloaded.
    pub fn load(&self, bare: &[u8], whole: &[u8], alias: &str) -> Result<()> {
        let load = |blob: &[u8]| match self.agent.load_remote_md(blob) {
            Ok(name) if name == alias => Ok(()),
            Ok(name) => {
                self.unload(&name);
                fail!(Internal, "NIXL loaded {alias:?} under the name {name:?}")
            }
            Err(error) => fail!(
                Incompatible,
                "NIXL cannot connect to the address in the agent metadata ({error}): that process has ended, or there is no network by which each side reaches the other one (see UCX_TLS, UCX_NET_DEVICES)"
            ),
        };
        load(bare)?;
        load(whole).inspect_err(|_| self.unload(alias))
    }

    /// Forgets a peer. None of its requests runs any more.
    pub fn unload(&self, alias: &str) {
        // NIXL may have dropped it by itself; then there is nothing left to do.
        let _ = self.agent.invalidate_remote_md(alias);
    }

    /// False when NIXL has dropped the peer, which it does when the endpoint broke.
    pub fn knows(&self, alias: &str) -> bool {
        // The answer is also no when the question failed, and it is too grave to rest on one call.
        (0..3).any(|_| self.agent.check_remote_metadata(alias, None))
    }

    /// Posts the transfer of `pieces`, (local, remote, bytes) with addresses in place of offsets.
    /// With some transports the bytes are copied before this returns.
    pub fn post(
        &mut self,
        direction: Direction,
        alias: &str,
        local: &Region,
        remote: &Coverage,
        pieces: &[Piece],
    ) -> State<Request> {
        self.local.clear();
        self.remote.clear();
        for piece in pieces {
            let mut here = local.base() + piece.local;
            for (there, len) in remote.parts(piece.remote, piece.len) {
                self.local.add_desc(here as usize, len as usize, 0);
                self.remote.add_desc(there as usize, len as usize, 0);
                here += len;
            }
        }
        let operation = match direction {
            Direction::Write => XferOp::Write,
            Direction::Read => XferOp::Read,
        };
        self.post_lists(operation, alias)
    }

    /// Reads the first byte of `remote` into memory that nobody looks at: it flushes the endpoint.
    pub fn probe(&mut self, alias: &str, remote: &Coverage) -> State<Request> {
        self.local.clear();
        self.remote.clear();
        let here = self.page.memory().base;
        for (there, len) in remote.parts(0, 1) {
            self.local.add_desc(here, len as usize, 0);
            self.remote.add_desc(there as usize, len as usize, 0);
        }
        self.post_lists(XferOp::Read, alias)
    }

    fn post_lists(&self, operation: XferOp, alias: &str) -> State<Request> {
        let request =
            match self
                .agent
                .create_xfer_req(operation, &self.local, &self.remote, alias, None)
            {
                Ok(request) => request,
                Err(error) => return State::Failed(error.to_string()),
            };
        match self.agent.post_xfer_req(&request, None) {
            Ok(false) => State::Done,
            Ok(true) => State::Running(Request(request)),
            Err(error) => State::Failed(error.to_string()),
        }
    }

    /// How a request is doing. It drives the whole agent, too.
    pub fn state(&self, request: &Request) -> State<()> {
        match self.agent.get_xfer_status(&request.0) {
            Ok(XferStatus::InProgress) => State::Running(()),
            Ok(XferStatus::Success) => State::Done,
            Err(error) => State::Failed(error.to_string()),
        }
    }

    /// Hands a message to NIXL. `Err`, with NIXL's word for it: it was not taken.
    pub fn notify(&self, alias: &str, message: &[u8]) -> std::result::Result<(), String> {
        self.agent
            .send_notification(alias, message, None)
            .map_err(|error| error.to_string())
    }

    /// Drives what peers do to this side's memory, and takes the messages that have come.
    pub fn drive(&mut self, inbox: &mut Inbox) -> Result<()> {
        let failed = |error| stage("make progress", &error);
        self.agent
            .get_notifications(&mut self.inbox, None)
            .map_err(failed)?;
        if self.inbox.is_empty().map_err(failed)? {
            return Ok(());
        }
        // A map cannot be emptied. Unless there is a new one and all of the old one can be read, the old
        // one waits for the next time.
        let next = NotificationMap::new().map_err(failed)?;
        let came = Came::read(&self.inbox).map_err(failed)?;
        self.inbox = next;
        inbox.refuse(came.refused);
        for (sender, bytes) in came.messages {
            inbox.put(&sender, bytes);
        }
        Ok(())
    }

    /// Ends everything, at once. What was posted touches no local memory any more.
    pub fn destroy(mut self) {
        let _sinks = std::mem::take(&mut self.event_sets).send_off(|| {
            let _ = self.drive(&mut Inbox::default());
        });
        self.scratch.end();
        self.registration.end();
        // Before the sinks.
        drop(self);
    }
}

/// What a map holds.
#[derive(Default)]
struct Came {
    messages: Vec<(Arc<str>, Vec<u8>)>,
    /// What is no message, or too much.
    refused: usize,
}

impl Came {
    /// `Err`: NIXL cannot say it now. It needs memory to look for a name.
    fn read(map: &NotificationMap) -> std::result::Result<Came, NixlError> {
        let mut came = Came::default();
        let mut seen = FxHashSet::default();
        let senders = map.len()?;
        came.refused = senders.saturating_sub(MOST_SENDERS);
        let mut names = map.agents();
        for _ in 0..senders.min(MOST_SENDERS) {
            // It counts them anew, and takes a failure for none.
            let name = names.next().unwrap_or(Err(NixlError::BackendError));
            // A name ends at its first NUL here. Then it is another's, or nobody's.
            let messages = match name {
                Ok(name) if seen.insert(name) => {
                    let messages = unless_invalid(map.get_notifications(name))?;
                    messages.map(|messages| (Arc::<str>::from(name), messages))
                }
                Ok(_) => None,
                Err(error) => unless_invalid(Err(error))?,
            };
            let Some((sender, messages)) = messages else {
                came.refused += 1;
                continue;
            };
            for message in messages {
                match unless_invalid(message)? {
                    Some(bytes) => came.messages.push((Arc::clone(&sender), bytes)),
                    None => came.refused += 1,
                }
            }
        }
        Ok(came)
    }
}

/// `None` for what NIXL does not know, or what is no text. That will not change.
fn unless_invalid<T>(
    result: std::result::Result<T, NixlError>,
) -> std::result::Result<Option<T>, NixlError> {
    match result {
        Ok(value) => Ok(Some(value)),
        Err(NixlError::InvalidParam) => Ok(None),
        Err(error) => Err(error),
    }
}

/// Memory that NIXL has registered, as long as this lives.
struct Registration(RegistrationHandle);

impl Registration {
    fn end(&mut self) {
        // nixl-sys panics when there is no memory for what it hands over. Then the memory is NIXL's until
        // the agent goes.
        let _ = catch_unwind(AssertUnwindSafe(|| self.0.deregister()));
    }
}

impl Drop for Registration {
    fn drop(&mut self) {
        self.end();
    }
}

/// Memory of the engine's own, which nobody but NIXL touches.
struct Page(Box<UnsafeCell<[u8; 4096]>>);

impl Page {
    fn memory(&self) -> Memory {
        Memory {
            base: self.0.get() as usize,
            bytes: 4096,
        }
    }
}

#[derive(Debug)]
struct Memory {
    base: usize,
    bytes: usize,
}

impl MemoryRegion for Memory {
    // SAFETY: the address is only handed to NIXL. The memory stays mapped until the engine is gone: by
    // the promise of `LocalRegion`, or because the engine owns it.
    unsafe fn as_ptr(&self) -> *const u8 {
        self.base as *const u8
    }

    fn size(&self) -> usize {
        self.bytes
    }
}

impl NixlDescriptor for Memory {
    fn mem_type(&self) -> MemType {
        MemType::Dram
    }

    fn device_id(&self) -> u64 {
        0
    }
}

fn stage(what: impl std::fmt::Display, error: &NixlError) -> Error {
    Error::new(
        Status::Backend,
        format!("NIXL cannot {what} ({error}); NIXL_LOG_LEVEL=info shows its own words"),
    )
}

fn no_agent(name: &str, error: &NixlError) -> Error {
    match config_file::suspicion() {
        Some((status, why)) => Error::new(
            status,
            format!("NIXL cannot create the agent {name:?} ({error}): {why}"),
        ),
        None => stage(format_args!("create the agent {name:?}"), error),
    }
}

fn no_backend(plugin: &str, error: &NixlError) -> Error {
    let advice = match std::env::var("UCX_TLS") {
        Ok(transports) => format!(
            "$UCX_TLS is {transports:?}: it needs a network transport that notices when a peer dies, so add tcp"
        ),
        Err(_) => format!(
            "libplugin_{plugin}.so belongs in the folder plugins beside the library, or in $NIXL_PLUGIN_DIR; NIXL_LOG_LEVEL=info and UCX_LOG_LEVEL=info show their own words"
        ),
    };
    Error::new(
        Status::Unavailable,
        format!("NIXL has no plugin {plugin:?}, or cannot start it ({error}); {advice}"),
    )
}
