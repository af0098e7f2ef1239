//! The C ABI and nothing else: pointers, strings and buffers come in, are checked, and go on as
//! Rust values; results and failures go back as C wants them. `include/dt.h` is generated from
//! these files, so their doc comments are written for a C programmer.
//!
//! - `guard`: what surrounds every call: panics, the log, the last error.
//! - `handle`, `last_error`: what the guard works on.
//! - `args`: checks of what C passes.
//! - the others: one group of functions of the header each.
//!
//! Every extern function is `unsafe` for one reason, which the header states: a pointer that is
//! neither NULL nor misaligned points to what the function says it points to.

// The names are those of the C API.
#![allow(non_camel_case_types)]

mod args;
mod fingerprint;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod guard;
mod handle;
mod handshake;
mod last_error;
mod log;
mod messages;
mod peers;
mod pull;
mod push;
mod region;
mod stats;
mod status;
mod transport;
