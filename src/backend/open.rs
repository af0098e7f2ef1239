//! Which backend serves a transport.

use std::env::{self, VarError};
use std::os::fd::RawFd;

use super::Backend;
use super::local::Local;
use crate::error::{Result, fail};
use crate::log::log;
use crate::region::LocalRegion;

/// Which backend the caller asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackendChoice {
    /// `$DT_BACKEND` if set, else the best that loads.
    Auto,
    /// Same host, embedded.
    Local,
    /// NIXL.
    Nixl,
}

/// Opens the backend of `choice` for a region, and tells the log which one that is, and why.
pub fn open(
    choice: BackendChoice,
    region: LocalRegion,
    region_fd: Option<(RawFd, u64)>,
    agent_name: &str,
) -> Result<Box<dyn Backend>> {
    let (choice, who) = match choice {
        BackendChoice::Auto => (environment()?, "the environment variable DT_BACKEND"),
        choice => (choice, "the caller"),
    };
    match choice {
        BackendChoice::Nixl => fail!(
            Unavailable,
            "{who} asks for NIXL, but this version of the library has no NIXL backend: ask for LOCAL \
             (DT_BACKEND_LOCAL, or DT_BACKEND=local), which works between processes of one host"
        ),
        BackendChoice::Auto => log!(Info, "backend LOCAL: this version has no other"),
        BackendChoice::Local => log!(Info, "backend LOCAL: {who} asks for it"),
    }
    Ok(Box::new(Local::create(region, region_fd, agent_name)?))
}

fn environment() -> Result<BackendChoice> {
    let wanted = match env::var("DT_BACKEND") {
        Ok(wanted) => wanted,
        Err(VarError::NotPresent) => return Ok(BackendChoice::Auto),
        Err(VarError::NotUnicode(wanted)) => wanted.to_string_lossy().into_owned(),
    };
    match wanted.to_ascii_lowercase().as_str() {
        "" => Ok(BackendChoice::Auto),
        "local" => Ok(BackendChoice::Local),
        "nixl" => Ok(BackendChoice::Nixl),
        _ => fail!(
            InvalidArg,
            "the environment variable DT_BACKEND is {wanted:?}, but it can be \"local\" or \"nixl\""
        ),
    }
}
