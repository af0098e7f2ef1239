//! The configuration fingerprint: canonical JSON and its hash.
//!
//! Two nodes that serve the same model configuration must get the same 16 digits, whether they use
//! this library or a few lines of Python. So the canonical text is, byte for byte, that of Python's
//! `json.dumps(json.loads(text), sort_keys=True, separators=(",", ":"))`.
//!
//! The canonicaliser is our own, because the usual JSON value types cannot hold what Python's can:
//! lone surrogates in strings, `NaN` and `Infinity`, integers of thousands of digits.
//!
//! - `canonical`: the grammar, and the canonical text in source order;
//! - `members`: the members of objects, brought into order;
//! - `strings`: code points as escapes, and as bytes that sort;
//! - `float`: decimal text to Python's shortest notation.

mod canonical;
mod float;
#[cfg(any(test, fuzzing))]
pub(crate) mod fuzz;
mod members;
mod strings;
#[cfg(test)]
mod tests;

use sha2::{Digest, Sha256};

use crate::error::Result;

pub use canonical::{MAX_INT_DIGITS, MAX_NESTING};

/// Bytes of the hash that the fingerprint shows, two hex digits each.
const HASH_BYTES: usize = 8;

/// The fingerprint of a JSON object: 16 lower-case hex digits, or "" for `None` and for an empty
/// object.
///
/// A text that Python's `json.loads` does not take as an object is `InvalidArg`; the sentence names
/// line and column, counted from 1 in characters, and what was expected there. The same holds for
/// nesting beyond [`MAX_NESTING`] and integers beyond [`MAX_INT_DIGITS`]. Time grows with the
/// length of the text (times its logarithm where keys are out of order), memory with the length.
pub fn compute(config_json: Option<&str>) -> Result<String> {
    let Some(text) = config_json else {
        return Ok(String::new());
    };
    let canonical = canonical::canonicalize(text)?;
    if canonical == "{}" {
        return Ok(String::new());
    }
    let hash = Sha256::digest(canonical.as_bytes());
    Ok(hash[..HASH_BYTES]
        .iter()
        .map(|byte| format!("{byte:02x}"))
        .collect())
}

/// Whether nodes with these fingerprints may work together: they are equal, or one of the nodes
/// made no statement.
pub fn compatible(a: &str, b: &str) -> bool {
    a.is_empty() || b.is_empty() || a == b
}
