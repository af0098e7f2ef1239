//! From the first call of NIXL to the last one: an agent is made, calls go in and come out, all of it is
//! given back.

use std::collections::{BTreeMap, VecDeque};
use std::time::{Duration, Instant};

use rustc_hash::FxHashMap;

use super::address::{Form, ports};
use super::engine::Engine;
use super::exit::{self, Step};
use super::lane::Purpose;
use super::listeners::Listeners;
use super::mail::Inbox;
use super::metadata::Metadata;
use super::pace::Pace;
use super::signals::LargeFilesFail;
use super::{Nixl, NixlConfig, library, room};
use crate::backend::{Backend, Event};
use crate::error::{Error, Result, Status, fail};
use crate::extents::Spare;
use crate::log::log;
use crate::process::Home;
use crate::region::LocalRegion;

/// What one attempt to close works for messages that have not arrived.
const CLOSE_SLICE: Duration = Duration::from_micros(500);

impl Nixl {
    /// A backend called `agent_name` over `region`.
    pub fn create(
        region: LocalRegion,
        config: &NixlConfig,
        agent_name: &str,
    ) -> Result<Box<dyn Backend>> {
        if agent_name.is_empty() || agent_name.contains('\0') {
            fail!(
                InvalidArg,
                "agent_name is {agent_name:?}, but NIXL needs at least one byte and no NUL"
            );
        }
        // Where there is none, nothing is prepared for it.
        let found = library::find(config.lib_dir.as_deref())?;
        let _inside = exit::enter();
        let files = LargeFilesFail::hold();
        exit::watch(Step::Unloaded)?;
        room::for_agent(config.num_threads, config.progress_thread)?;
        let file = library::load(&found, config.plugin())?;
        exit::watch(Step::Loaded)?;
        let (mut engine, metadata) = Engine::create(agent_name, region, config)
            .map_err(|error| match files.was_needed() {
                true => room::too_small_files(),
                false => error,
            })
            .map_err(|error| error.context(format_args!("with {}", file.display())))?;
        log!(
            Info,
            "NIXL agent {agent_name:?}: library {}, plugin {}, {} worker threads, progress thread {}",
            file.display(),
            config.plugin(),
            config.num_threads,
            if config.progress_thread { "on" } else { "off" }
        );
        let (form, listeners) = if config.plugin() == "UCX" {
            let address = Metadata::parse(&metadata, "UCX")?.address;
            engine.know(address);
            (Some(Form::of(address)), Listeners::at(&ports(address)))
        } else {
            (None, Listeners::default())
        };
        if form.as_ref().is_some_and(|form| !form.is_known()) {
            log!(
                Warn,
                "NIXL: UCX's addresses have a form that is not known here, so those of peers go to UCX unchecked"
            );
        }
        Ok(Box::new(Nixl {
            name: agent_name.to_owned(),
            plugin: config.plugin().to_owned(),
            region: region.blocks(),
            metadata,
            form,
            listeners,
            engine: Some(engine),
            home: Home::here(),
            lanes: BTreeMap::new(),
            ops: FxHashMap::default(),
            rotation: VecDeque::new(),
            pending: Vec::new(),
            spare: Spare::default(),
            pieces: Vec::new(),
            pace: Pace::new(config.progress_thread, Instant::now()),
            ended_at_once: false,
            inbox: Inbox::default(),
            one_endpoint: config.num_threads == 0,
        }))
    }

    /// NIXL can be called while the result lives. `None`: it cannot be called any more, in a forked
    /// child, where sockets and requests are the parent's, and late in the exit of the process. Then all
    /// that is NIXL's is forgotten without telling it.
    pub(super) fn enter(&mut self) -> Option<exit::Inside> {
        let inside = exit::enter().filter(|_| self.home.is_here());
        if inside.is_none() {
            // Every call comes here from now on.
            if self.engine.is_some() || !self.lanes.is_empty() {
                exit::keep((self.engine.take(), std::mem::take(&mut self.lanes)));
            }
            self.rotation.clear();
            // Nobody moves their bytes any more.
            for (op, _) in self.ops.drain() {
                let result = Err(Error::new(Status::Cancelled, "the process exits"));
                self.pending.push(Event::Ended { op, result });
            }
        }
        inside
    }

    /// As [`enter`](Self::enter), for calls that need an open engine.
    pub(super) fn enter_open(&mut self) -> Result<exit::Inside> {
        match self.enter() {
            Some(inside) if self.engine.is_some() => Ok(inside),
            _ => fail!(Closed, "the transport is closed, or the process exits"),
        }
    }

    /// Gives all of it back, once nothing runs that touches the region.
    pub(super) fn leave_if_quiet(&mut self) -> Result<()> {
        let _inside = self.enter();
        self.settle_mail(CLOSE_SLICE)?;
        // The probe of a message reads into the engine's own memory.
        let posted = self.lanes.values().flat_map(|lane| &lane.posted);
        let running = posted
            .filter(|posted| posted.purpose != Purpose::Mail)
            .count();
        if running > 0 {
            fail!(Timeout, "NIXL still works on {running} requests");
        }
        self.leave();
        Ok(())
    }

    /// Gives all of it back, whatever runs.
    pub(super) fn leave(&mut self) {
        let _inside = self.enter();
        // Requests go before the endpoint that they use, endpoints before the memory that they reach.
        for (_, lane) in std::mem::take(&mut self.lanes) {
            drop(lane.posted);
            if let Some(engine) = &self.engine {
                engine.unload(&lane.alias);
            }
        }
        self.ops.clear();
        self.rotation.clear();
        self.pending.clear();
        if let Some(engine) = self.engine.take() {
            self.listeners.end(|| engine.destroy());
        }
    }
}

impl Drop for Nixl {
    fn drop(&mut self) {
        self.leave();
    }
}
