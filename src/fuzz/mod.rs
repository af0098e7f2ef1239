//! What must hold whatever a stranger sends: one function of bytes for each kind of input, which
//! panics when something does not hold. They stand beside what they check, because most of that is
//! nobody else's business.
//!
//! `cargo fuzz` (the folder `fuzz/`) looks for bytes that break them. `cargo test` runs them over the
//! corpora that it has found, and over mutations of these. Nothing here is part of the library: it
//! exists in tests and under `cfg(fuzzing)`.

mod input;
pub mod meter;
#[cfg(test)]
mod tests;

pub use crate::backend::local::fuzz::{local_mail, local_metadata};
pub use crate::backend::nixl::fuzz::nixl_metadata;
pub use crate::descriptor::fuzz::descriptor;
pub use crate::ffi::fuzz::calls;
pub use crate::fingerprint::fuzz::fingerprint;
pub use crate::handshake::fuzz::handshake;
pub(crate) use input::Input;

/// Room for an error's sentence, whatever the input.
pub(crate) const SENTENCE: usize = 2048;
