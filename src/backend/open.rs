//! Which backend serves a transport.

use std::env::{self, VarError};
use std::os::fd::RawFd;

use super::Backend;
use super::local::{Local, maps};
use super::nixl::{Nixl, NixlConfig};
use crate::error::{Result, fail};
use crate::log::log;
use crate::region::LocalRegion;

/// Which backend the caller asks for.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum BackendChoice {
    /// `$DT_BACKEND` if set, else NIXL when it loads, else LOCAL.
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
    config: &NixlConfig,
    agent_name: &str,
) -> Result<Box<dyn Backend>> {
    let (choice, who) = match choice {
        BackendChoice::Auto => (environment()?, "the environment variable DT_BACKEND"),
        choice => (choice, "the caller"),
    };
    let local = || -> Result<Box<dyn Backend>> {
        Ok(Box::new(Local::create(region, region_fd, agent_name)?))
    };
    let nixl = || {
        // UCX finds out by a signal, in this process or in a peer.
        maps::check(&region.blocks(), None)?;
        Nixl::create(region, config, agent_name)
    };
    match choice {
        BackendChoice::Local => {
            log!(Info, "backend LOCAL: {who} asks for it");
            local()
        }
        BackendChoice::Nixl => {
            log!(Info, "backend NIXL: {who} asks for it");
            nixl()
        }
        BackendChoice::Auto => match nixl() {
            Ok(backend) => {
                log!(Info, "backend NIXL: none was asked for, and NIXL loads");
                Ok(backend)
            }
            Err(error) => {
                const WHY: &str = "backend LOCAL: none was asked for, and NIXL does not start";
                match config.place() {
                    // Whoever says where it is wants it.
                    Some(place) => log!(Warn, "{WHY}, though {place}: {error}"),
                    None => log!(Info, "{WHY}: {error}"),
                }
                local()
            }
        },
    }
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
