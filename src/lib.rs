//! libdatatransport: moves KV-cache and encoder-cache blocks between LLM serving processes.
//!
//! The product is the C ABI of `include/dt.h`. This page is the map of the crate, in the order in
//! which data flows; a module uses only what stands below it.
//!
//! - `ffi`: the C ABI and nothing else: pointers, strings, buffers, the panic guard, last error.
//! - [`transport`]: one transport; ties the rooms below together under one lock.
//! - [`ledger`]: the life of every transfer id; a pure state machine.
//! - [`peers`]: registrations of peers, their fault state, their generations.
//! - [`handshake`]: what two nodes must agree on, as one blob.
//! - [`backend`]: what moves bytes: LOCAL (same host), NIXL (through NIXL's library).
//! - [`extents`]: index lists to merged runs, and runs to pieces.
//! - [`descriptor`]: a transport's blocks as MessagePack, and those of a peer.
//! - [`layout`]: where the blocks of a peer lie.
//! - [`region`]: block geometry.
//! - [`fingerprint`]: canonical JSON and its hash.
//! - `kept`: what memory is kept for the next transfers.
//! - `process`, `clock`, [`log`], [`error`]: used by all.

pub mod backend;
mod clock;
pub mod descriptor;
pub mod error;
pub mod extents;
mod ffi;
pub mod fingerprint;
#[cfg(any(test, fuzzing))]
pub mod fuzz;
pub mod handshake;
mod kept;
pub mod layout;
pub mod ledger;
pub mod log;
pub mod outgoing;
pub mod peers;
mod process;
pub mod region;
pub mod transport;
