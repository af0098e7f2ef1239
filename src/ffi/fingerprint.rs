//! Fingerprints of model configurations.

use std::ffi::c_char;

use super::args::{self, Out};
use super::guard;
use super::status::dt_status;
use crate::error::{Error, Result, Status};
use crate::fingerprint;

/// Bytes of a fingerprint as a C string.
const SIZE: usize = 17;

/// cbindgen:ptrs-as-arrays=[[out;17]]
/// Computes the fingerprint of a model configuration. Two nodes whose fingerprints differ hold
/// different things in their blocks and must not exchange them.
///
/// It is the first 16 hex digits of the SHA-256 of the text that Python's
/// json.dumps(json.loads(config_json), sort_keys=True, separators=(",", ":")) gives, byte for byte,
/// for every text that Python's json.loads takes as an object, NaN and Infinity included. Not
/// taken: integers above 4300 digits, a byte order mark, nesting beyond a limit of at least 900.
///
/// @param config_json  the text of a JSON object. NULL and an empty object give "".
/// @param out          room for 17 bytes: 16 lower-case hex digits and a NUL, or "". Written on
///                     DT_OK only.
///
/// @return
/// - DT_OK
/// - DT_ERR_INVALID_ARG: out is NULL; or config_json is not the text of an object, and
///   dt_last_error says at which position
/// - DT_ERR_INTERNAL
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_compute_fingerprint(
    config_json: *const c_char,
    out: *mut c_char,
) -> dt_status {
    guard::call("dt_compute_fingerprint", || {
        // SAFETY: `out` has 17 bytes and `config_json` is a string, as the header says.
        let (out, config) = unsafe {
            (
                Out::new("out", out.cast::<[u8; SIZE]>())?,
                args::optional_text("config_json", config_json)?,
            )
        };
        out.write(terminated(&fingerprint::compute(config)?)?);
        Ok(())
    })
}

fn terminated(fingerprint: &str) -> Result<[u8; SIZE]> {
    let mut bytes = [0; SIZE];
    match bytes[..SIZE - 1].get_mut(..fingerprint.len()) {
        Some(room) => room.copy_from_slice(fingerprint.as_bytes()),
        None => {
            let message = format!("the fingerprint {fingerprint} has more than 16 digits");
            return Err(Error::new(Status::Internal, message));
        }
    }
    Ok(bytes)
}

/// True if nodes with these two fingerprints may exchange blocks: they are equal, or at least one
/// of them is empty (nothing is known).
///
/// @param a  a fingerprint; NULL counts as "".
/// @param b  the other one; NULL counts as "".
/// @return true or false; false as well if one of them is not UTF-8.
#[unsafe(no_mangle)]
pub unsafe extern "C" fn dt_fingerprints_compatible(a: *const c_char, b: *const c_char) -> bool {
    guard::value("dt_fingerprints_compatible", false, || {
        // SAFETY: NULL or strings, as the header says.
        let (a, b) = unsafe { (args::optional_text("a", a)?, args::optional_text("b", b)?) };
        Ok(fingerprint::compatible(a.unwrap_or(""), b.unwrap_or("")))
    })
}
