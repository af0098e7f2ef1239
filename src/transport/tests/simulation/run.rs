//! Runs a program on simulated transports, and compares each with its model after every step.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::sync::Arc;
use std::time::Duration;

use fastrand::Rng;
use parking_lot::Mutex;

use super::backend::Simulated;
use super::marks::{Mark, Marks};
use super::model::{Model, Phase, ensure, nothing_more};
use super::program::{Call, NODES, Program, Step, numbers};
use super::world::{Fact, Life, Rates, Verdict, World};
use crate::clock::Clock;
use crate::error::{Result as CallResult, Status};
use crate::region::{LocalRegion, Region};
use crate::transport::{BackendChoice, Config, NixlConfig, Transport};

/// What work one call that drives may do.
pub(super) const BUDGET: Duration = Duration::from_micros(50);

const NODE_NAMES: [&str; NODES] = ["node-0", "node-1", "node-2"];

/// Every name that a peer can have. The last ones are those that agents give themselves.
pub(super) const NAMES: [&str; 7] = ["p", "q", "r", "s", "node-0", "node-1", "node-2"];

/// One transport and what is known of it.
pub(super) struct Node {
    pub(super) transport: Option<Transport>,
    pub(super) model: Model,
    pub(super) fingerprint: &'static str,
}

/// A program under way.
pub(super) struct Run {
    pub(super) world: Arc<Mutex<World>>,
    pub(super) clock: Clock,
    pub(super) nodes: Vec<Node>,
    /// For all that the program itself chooses.
    pub(super) numbers: Rng,
    setup: Rng,
    pub(super) messages: u32,
    trace: Option<Vec<String>>,
}

/// What came of a run.
pub(super) struct Outcome {
    pub(super) verdict: Verdict,
    pub(super) marks: Marks,
    /// Calls of backends that could have failed.
    pub(super) inner_calls: u64,
    pub(super) trace: Vec<String>,
}

/// Runs a program to its end, or to what is wrong.
pub(super) fn run(program: &Program, traced: bool) -> Outcome {
    let mut run = Run::new(program, traced);
    let verdict = catch_unwind(AssertUnwindSafe(|| run.all(&program.steps)));
    let verdict = verdict.unwrap_or_else(|panic| {
        let text = panic.downcast_ref::<String>().cloned();
        let text = text.or_else(|| panic.downcast_ref::<&str>().map(|text| (*text).to_owned()));
        Err(format!("panic: {}", text.unwrap_or_default()))
    });
    if verdict.is_err() {
        // What is broken may not even be dropped.
        std::mem::forget(std::mem::take(&mut run.nodes));
    }
    let mut world = run.world.lock();
    let mut marks = std::mem::take(&mut world.marks);
    marks.runs = 1;
    marks.steps = program.steps.len() as u64;
    marks.inner_calls = world.inner_calls;
    marks.compared = world.shadow.compared;
    Outcome {
        verdict,
        marks,
        inner_calls: world.inner_calls,
        trace: run.trace.take().unwrap_or_default(),
    }
}

impl Run {
    fn new(program: &Program, traced: bool) -> Run {
        let mut setup = numbers(program.setup);
        let rates = match program.fuse {
            None => Rates::drawn(&mut setup),
            Some(_) => Rates::pace(&mut setup),
        };
        let clock = Clock::simulated();
        let world = World::new(clock.clone(), rates, program.fuse);
        let mut run = Run {
            world: Arc::new(Mutex::new(world)),
            clock,
            nodes: Vec::new(),
            numbers: Rng::with_seed(0),
            setup,
            messages: 0,
            trace: traced.then(Vec::new),
        };
        for at in 0..NODES {
            let node = run.make_node(at);
            run.nodes.push(node);
        }
        run
    }

    /// A transport for a node, as that of a process that has just started.
    pub(super) fn make_node(&mut self, at: usize) -> Node {
        let numbers = &mut self.setup;
        // Few blocks: transfers meet. One in a while does not fit to the others.
        let odd = numbers.u8(..16) == 0;
        let block_len = if odd { 5 } else { 4 };
        let blocks = numbers.usize(4..=16);
        // Different processes use the same addresses.
        let base = [1 << 20, 1 << 20, 3 << 19][numbers.usize(..3)];
        let fingerprint = ["", "", "", "00112233aabbccdd", "0011223344556677"][numbers.usize(..5)];
        let region = Region::new(base, blocks as u64, block_len as u64);
        let config = Config {
            // SAFETY: the simulated backend touches no memory but its own.
            region: unsafe { LocalRegion::new(region.expect("small numbers")) },
            region_fd: None,
            backend: BackendChoice::Local,
            nixl: NixlConfig::default(),
            agent_name: None,
            config_json: None,
            poll_budget: BUDGET,
        };
        let name = NODE_NAMES[at];
        let agent = self.world.lock().add_agent(name, base, (blocks, block_len));
        let backend = Box::new(Simulated::new(self.world.clone(), agent));
        let clock = self.clock.clone();
        Node {
            transport: Some(Transport::over(
                backend,
                config,
                fingerprint.into(),
                name.into(),
                clock,
            )),
            model: Model::new(agent, (blocks, block_len)),
            fingerprint,
        }
    }

    fn all(&mut self, steps: &[Step]) -> Verdict {
        for (at, step) in steps.iter().enumerate() {
            let said = |verdict: Verdict| {
                verdict.map_err(|breach| format!("step {at}, {:?}: {breach}", step.call))
            };
            said(self.step(*step))?;
            said(self.check(step.node))?;
        }
        let salt = self.setup.u32(..);
        self.reseed(salt);
        self.end().map_err(|breach| format!("at the end: {breach}"))
    }

    fn reseed(&mut self, salt: u32) {
        self.numbers = numbers(u64::from(salt));
        self.world.lock().numbers = numbers(u64::from(salt) | 1 << 40);
    }

    /// The call of a step, or one without which it would be wasted.
    fn useful(&mut self, step: Step) -> Call {
        let model = &self.nodes[step.node].model;
        let works = matches!(
            step.call,
            Call::Write | Call::Read | Call::PostRead | Call::Send | Call::Flood
        );
        let healthy = model.peers.iter().any(|peer| peer.fault.is_none());
        if model.refuses_all().is_some() && self.numbers.u8(..4) == 0 {
            Call::Destroy
        } else if works && !healthy && self.numbers.u8(..4) > 0 {
            Call::AddPeer
        } else {
            step.call
        }
    }

    fn step(&mut self, step: Step) -> Verdict {
        self.reseed(step.salt);
        let call = self.useful(step);
        self.world.lock().marks.count_call(call);
        self.note(|| format!("node {} {call:?}", step.node));
        let at = step.node;
        match call {
            Call::AddPeer => self.add_peer(at),
            Call::AddAgent => self.add_agent(at),
            Call::ImportHandshake => self.import_handshake(at),
            Call::AddWrong => self.add_wrong(at),
            Call::RemovePeer => self.remove_peer(at),
            Call::PeerStatus => self.peer_status(at),
            Call::Write | Call::Read | Call::PostRead => self.submit(at, call),
            Call::SubmitWrong => self.submit_wrong(at),
            Call::ReadState => self.read_state(at),
            Call::ReleaseRead => self.release_read(at),
            Call::Poll => self.poll(at),
            Call::Wait => self.wait(at),
            Call::CancelImmediate => self.cancel(at, crate::transport::CancelMode::Immediate),
            Call::CancelWait => self.cancel(at, crate::transport::CancelMode::Wait),
            Call::Send => self.send(at),
            Call::Receive => self.receive(at),
            Call::Describe => self.describe(at),
            Call::Close => self.close(at),
            Call::Destroy => self.destroy(at),
            Call::Kill => self.kill(at),
            Call::Break => self.break_it(at),
            Call::Tick => {
                self.world.lock().tick();
                Ok(())
            }
            Call::Lose => self.lose(at),
            Call::Foreign => self.foreign(at),
            Call::Flood => self.flood(at),
        }
    }

    pub(super) fn note(&mut self, text: impl FnOnce() -> String) {
        if let Some(trace) = &mut self.trace {
            trace.push(text());
        }
    }

    pub(super) fn transport(&self, at: usize) -> &Transport {
        let transport = self.nodes[at].transport.as_ref();
        transport.expect("taken only to be replaced")
    }

    /// Takes what the backend has said since the last time.
    pub(super) fn facts(&mut self) -> Vec<Fact> {
        let facts = std::mem::take(&mut self.world.lock().facts);
        self.note(|| format!("    {facts:?}"));
        facts
    }

    /// Calls a transport. `Err` here: it was refused as all calls are now, and that is right.
    pub(super) fn call<T: std::fmt::Debug>(
        &mut self,
        at: usize,
        body: impl FnOnce(&Transport) -> CallResult<T>,
    ) -> Result<Result<Result<T, Status>, ()>, String> {
        let got = body(self.transport(at)).map_err(|error| error.status);
        self.note(|| format!("    {got:?}"));
        let model = &self.nodes[at].model;
        let Some(status) = model.refuses_all() else {
            return Ok(Ok(got));
        };
        let broken = model.broken;
        let facts = self.facts();
        nothing_more(&facts)?;
        ensure!(
            got.as_ref().err() == Some(&status),
            "{got:?} of a transport that refuses everything with {status:?}"
        );
        self.world.lock().mark(match broken {
            true => Mark::CalledBroken,
            false => Mark::CalledClosed,
        });
        Ok(Err(()))
    }

    /// What must hold after every call.
    fn check(&mut self, at: usize) -> Verdict {
        let world = self.world.lock();
        if let Some(breach) = &world.breach {
            return Err(breach.clone());
        }
        drop(world);
        let stats = self.transport(at).stats();
        let stats = stats.map_err(|error| format!("no stats: {error}"))?;
        let facts = self.facts();
        nothing_more(&facts)?;
        let node = &mut self.nodes[at];
        node.model.check(&stats, &self.world.lock())
    }

    /// A transport comes to its end. What it leaves is compared with nothing.
    pub(super) fn finish_node(&mut self, at: usize) -> Verdict {
        let was_closed = self.nodes[at].model.phase == Phase::Closed;
        let first = self.nodes[at].model.phase == Phase::Open;
        drop(self.nodes[at].transport.take());
        let facts = self.facts();
        let world = &mut *self.world.lock();
        let model = &mut self.nodes[at].model;
        let forced = facts.contains(&Fact::Forced);
        let closed = if was_closed {
            nothing_more(&facts)?;
            true
        } else {
            model.closed(first, facts, world)?
        };
        ensure!(closed != forced, "closed: {closed}, by force: {forced}");
        world
            .shadow
            .release_all_of(model.agent, &mut world.memories);
        let agent = &world.agents[model.agent];
        ensure!(agent.dropped, "the backend is still there");
        ensure!(agent.life == Life::Closed, "the backend was not closed");
        ensure!(agent.conns.is_empty(), "connections are left");
        let mut ops = world.ops.iter();
        ensure!(
            ops.all(|op| op.agent != model.agent),
            "transfers are left after the end"
        );
        Ok(())
    }

    /// All nodes come to their ends, in one of several ways.
    fn end(&mut self) -> Verdict {
        self.note(|| "the end".into());
        for at in 0..self.nodes.len() {
            match self.numbers.u8(..4) {
                0 => {
                    self.finish_node(at)?;
                    continue;
                }
                1 => {}
                _ => {
                    self.world.lock().calm = true;
                    self.settle(at)?;
                }
            }
            self.world.lock().calm = true;
            if !self.nodes[at].model.broken {
                self.close_within(at, Duration::from_millis(10))?;
                ensure!(
                    self.nodes[at].model.phase == Phase::Closed,
                    "not closed, though nothing is in the way"
                );
            }
            self.check(at)?;
            self.finish_node(at)?;
            self.world.lock().calm = false;
        }
        let world = self.world.lock();
        match &world.breach {
            Some(breach) => Err(breach.clone()),
            None => Ok(()),
        }
    }

    /// With nothing in the way, everything ends, surfaces, and leaves nothing.
    fn settle(&mut self, at: usize) -> Verdict {
        if self.nodes[at].model.refuses_all().is_some() {
            return Ok(());
        }
        // One turn for what is under way, and more for its messages, which go in bounded numbers.
        let turns = 2 + self.nodes[at].model.ids().count() / 64;
        for _ in 0..turns {
            self.poll_all(at)?;
            self.check(at)?;
        }
        ensure!(
            !self.nodes[at].model.is_busy() && !self.nodes[at].model.has_ready(),
            "something has not ended"
        );
        for handle in self.nodes[at].model.handles() {
            self.read_state_of(at, handle)?;
            self.release(at, handle)?;
        }
        self.receive_all(at)?;
        self.check(at)?;
        let transport = self.nodes[at].transport.as_ref().expect("it is there");
        let inner = transport.lock();
        ensure!(inner.outgoing.is_empty(), "messages are left");
        for name in NAMES {
            ensure!(
                inner.peers.key(name).is_some() == self.nodes[at].model.peer(name).is_some(),
                "{name} is known, or is not"
            );
        }
        Ok(())
    }
}
