//! The shadow of all simulated memory: which bytes may still be touched, and by which transfer.
//!
//! A transfer has a *claim* on its bytes from its submission until the contract gives them back to the
//! caller, who is simulated as one that uses them at once: they are scribbled over. Whoever touches a
//! byte without a claim is found out, as is a transfer that is done and has not moved its bytes.

use super::world::Verdict;
use crate::backend::Direction;

/// Bytes of one agent.
#[derive(Default)]
pub(super) struct Memory {
    pub(super) bytes: Vec<u8>,
    shades: Vec<Shade>,
}

#[derive(Clone, Copy, Default)]
struct Shade {
    /// Claims that read this byte, or write it.
    readers: u16,
    writers: u16,
    /// The last claim that writes it; odd: it writes it more than once.
    written: u64,
}

impl Memory {
    pub(super) fn new(bytes: usize, first: u8) -> Memory {
        let mut memory = Memory {
            bytes: vec![0; bytes],
            shades: vec![Shade::default(); bytes],
        };
        for at in 0..bytes {
            memory.scribble(at, first);
        }
        memory
    }

    /// The caller, or the peer's, uses a byte for something else.
    fn scribble(&mut self, at: usize, salt: u8) {
        self.bytes[at] = (at as u8).wrapping_mul(29) ^ salt.wrapping_mul(113);
    }

    /// Whether no transfer has to do with so many bytes from `at` on.
    pub(super) fn is_free(&self, at: usize, len: usize) -> bool {
        let free = |shade: &Shade| shade.readers == 0 && shade.writers == 0;
        self.shades[at..at + len].iter().all(free)
    }
}

/// What one transfer may touch.
pub(super) struct Claim {
    /// Agents: who transfers, and with whom.
    pub(super) agent: usize,
    pub(super) target: usize,
    direction: Direction,
    block_len: usize,
    /// Where the blocks begin, here and there, in the order of the caller's lists.
    pairs: Vec<(usize, usize)>,
    stamp: u64,
    /// The bytes to move, as they were when the claim was made.
    source: Vec<u8>,
    /// Whether no other transfer was to change that byte, here or there.
    pure: Vec<bool>,
    open: bool,
}

/// All claims that ever were.
#[derive(Default)]
pub(super) struct Shadow {
    claims: Vec<Claim>,
    /// Bytes of transfers that were done and found to have arrived.
    pub(super) compared: u64,
}

impl Claim {
    /// Which bytes go where, as (agent, place).
    fn ends(&self, byte: usize) -> [(usize, usize); 2] {
        let (local, remote) = self.pairs[byte / self.block_len];
        let within = byte % self.block_len;
        let (here, there) = ((self.agent, local + within), (self.target, remote + within));
        match self.direction {
            Direction::Write => [here, there],
            Direction::Read => [there, here],
        }
    }

    fn len(&self) -> usize {
        self.pairs.len() * self.block_len
    }
}

impl Shadow {
    /// A transfer is about to be submitted. Says which claim is its own.
    pub(super) fn claim(
        &mut self,
        memories: &mut [Memory],
        (agent, target): (usize, usize),
        direction: Direction,
        block_len: usize,
        pairs: Vec<(usize, usize)>,
    ) -> usize {
        let stamp = 2 * (self.claims.len() as u64 + 1);
        let mut claim = Claim {
            agent,
            target,
            direction,
            block_len,
            pairs,
            stamp,
            source: Vec::new(),
            pure: Vec::new(),
            open: true,
        };
        for byte in 0..claim.len() {
            let [_, (to, at)] = claim.ends(byte);
            let shade = &mut memories[to].shades[at];
            claim.pure.push(shade.writers == 0);
            shade.written = stamp | u64::from(shade.written >= stamp);
            shade.writers += 1;
        }
        for byte in 0..claim.len() {
            let [(from, at), _] = claim.ends(byte);
            let shade = &mut memories[from].shades[at];
            claim.pure[byte] &= shade.writers == 0;
            shade.readers += 1;
            claim.source.push(memories[from].bytes[at]);
        }
        self.claims.push(claim);
        self.claims.len() - 1
    }

    /// A transfer moves its next bytes, those from `first` on.
    pub(super) fn moves(
        &self,
        claim: usize,
        memories: &mut [Memory],
        first: usize,
        (local, remote): (usize, usize),
        len: usize,
    ) -> Verdict {
        let claim = &self.claims[claim];
        if !claim.open {
            return Err("a transfer moves bytes that are the caller's again".into());
        }
        for more in 0..len {
            if first + more >= claim.len() {
                return Err("a transfer moves more bytes than it was given".into());
            }
            let (here, there) = ((claim.agent, local + more), (claim.target, remote + more));
            let expected = claim.ends(first + more);
            let found = match claim.direction {
                Direction::Write => [here, there],
                Direction::Read => [there, here],
            };
            if found != expected {
                return Err(format!(
                    "byte {} of a transfer moves {found:?}, not {expected:?}",
                    first + more
                ));
            }
            let [(from, source), (to, destination)] = found;
            memories[to].bytes[destination] = memories[from].bytes[source];
        }
        Ok(())
    }

    /// The bytes of a transfer are the caller's again. `done`: and they have arrived.
    pub(super) fn release(&mut self, claim: usize, memories: &mut [Memory], done: bool) -> Verdict {
        let claim = &mut self.claims[claim];
        if !std::mem::replace(&mut claim.open, false) {
            return Ok(());
        }
        let mut verdict = Ok(());
        for byte in 0..claim.len() {
            let [(from, source), (to, destination)] = claim.ends(byte);
            // What other transfers have changed meanwhile says nothing.
            let comparable = claim.pure[byte]
                && memories[to].shades[destination].written == claim.stamp
                && memories[from].shades[source].written < claim.stamp;
            if done && comparable {
                self.compared += 1;
                if memories[to].bytes[destination] != claim.source[byte] {
                    verdict = Err(format!(
                        "done, but byte {byte} has not arrived at {destination} of agent {to}"
                    ));
                }
            }
        }
        for byte in 0..claim.len() {
            let [(from, source), (to, destination)] = claim.ends(byte);
            memories[from].shades[source].readers -= 1;
            memories[to].shades[destination].writers -= 1;
            for (agent, at) in [(from, source), (to, destination)] {
                if memories[agent].is_free(at, 1) {
                    memories[agent].scribble(at, claim.stamp as u8 >> 1);
                }
            }
        }
        verdict
    }

    /// The owner of an agent's memory has it back, and so have its peers what it worked on.
    pub(super) fn release_all_of(&mut self, agent: usize, memories: &mut [Memory]) {
        for at in 0..self.claims.len() {
            if self.claims[at].agent == agent {
                // Nobody was told that it is done.
                let _ = self.release(at, memories, false);
            }
        }
    }
}
