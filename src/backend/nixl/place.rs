//! Where NIXL's library is looked for, and what may be wrong with a place that somebody has named.

use std::ffi::OsStr;
use std::fmt;
use std::fs::metadata;
use std::io::ErrorKind;
use std::path::{PathBuf, absolute};

use crate::error::{Result, fail};

/// What the loader knows it by.
pub const FILE_NAME: &str = "libnixl_capi.so";

/// How a user comes by the library; part of every sentence that says that there is none.
pub const REMEDY: &str = "install NIXL 1.5 (PyPI: nixl-cu12, whose libraries are in .nixl_cu12.mesonpy.libs) and name the folder of libnixl_capi.so in nixl_lib_dir or $DT_NIXL_LIB_DIR";

/// A folder that somebody has named, or the library in it.
#[derive(Debug)]
pub struct Place {
    /// Where the name stands.
    by: &'static str,
    path: PathBuf,
}

impl Place {
    /// What the caller has named, or else the environment. An empty name is none.
    pub fn named(lib_dir: Option<&str>) -> Option<Place> {
        let asked = lib_dir.map(|dir| ("nixl_lib_dir", dir.into()));
        let variable = std::env::var_os("DT_NIXL_LIB_DIR");
        let environment = variable.map(|dir| ("$DT_NIXL_LIB_DIR", dir));
        let is_name = |(_, dir): &(_, std::ffi::OsString)| !dir.is_empty();
        let (by, dir) = asked
            .filter(is_name)
            .or_else(|| environment.filter(is_name))?;
        // The process may change its folder, and a sentence should say where was looked.
        let path = absolute(&dir).unwrap_or(dir.into());
        Some(Place { by, path })
    }

    /// The library's file, whether it is there or not.
    pub fn file(&self) -> PathBuf {
        let is_file = self.path.file_name() == Some(OsStr::new(FILE_NAME)) && !self.path.is_dir();
        match is_file {
            true => self.path.clone(),
            false => self.path.join(FILE_NAME),
        }
    }

    /// Says what is wrong if there is no library. The loader says it in words that lead nowhere, and
    /// waits for ever for what is no file.
    pub fn check(&self) -> Result<()> {
        let file = self.file();
        let wrong = match (metadata(&self.path), metadata(&file)) {
            (Err(error), _) if error.kind() == ErrorKind::NotFound => "is not there".into(),
            (Err(error), _) => format!("cannot be looked at ({error})"),
            (Ok(place), _) if file != self.path && !place.is_dir() => {
                format!("is neither a folder nor a {FILE_NAME}")
            }
            (_, Err(error)) if error.kind() == ErrorKind::NotFound => {
                format!("is a folder without {FILE_NAME}")
            }
            (_, Err(error)) => format!("cannot be looked into ({error})"),
            (_, Ok(found)) if !found.is_file() && file == self.path => "is no regular file".into(),
            (_, Ok(found)) if !found.is_file() => {
                format!("has a {FILE_NAME} that is no regular file")
            }
            _ => return Ok(()),
        };
        fail!(Unavailable, "NIXL: {self}, which {wrong}; {REMEDY}")
    }
}

impl fmt::Display for Place {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} names {}", self.by, self.path.display())
    }
}
