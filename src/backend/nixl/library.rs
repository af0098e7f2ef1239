//! Finding NIXL's library at run time, and making sure that it can be called.
//!
//! nixl-sys looks for `libnixl_capi.so` by that name at its first call, and ends the process when a
//! call is not in it. So the library is opened here first, by its path, and asked for every symbol
//! that a call can reach. One process has one NIXL: the first library that passes stays.

use std::collections::BTreeSet;
use std::ffi::{CStr, CString, c_int, c_void};
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use parking_lot::Mutex;

use super::elf::{self, is_foreign};
use super::place::{FILE_NAME, Place, REMEDY};
use super::signals::Signals;
use super::ucx;
use crate::error::{Error, Result, Status, fail};
use crate::process::PerProcess;

/// Every function of NIXL that this backend can reach through nixl-sys, drops included.
const SYMBOLS: [&CStr; 38] = [
    c"nixl_capi_check_remote_md",
    c"nixl_capi_create_backend",
    c"nixl_capi_create_configured_agent",
    c"nixl_capi_create_notif_map",
    c"nixl_capi_create_opt_args",
    c"nixl_capi_create_params",
    c"nixl_capi_create_reg_dlist",
    c"nixl_capi_create_xfer_dlist",
    c"nixl_capi_create_xfer_req",
    c"nixl_capi_deregister_mem",
    c"nixl_capi_destroy_agent",
    c"nixl_capi_destroy_backend",
    c"nixl_capi_destroy_notif_map",
    c"nixl_capi_destroy_opt_args",
    c"nixl_capi_destroy_params",
    c"nixl_capi_destroy_reg_dlist",
    c"nixl_capi_destroy_xfer_dlist",
    c"nixl_capi_destroy_xfer_req",
    c"nixl_capi_gen_notif",
    c"nixl_capi_get_local_md",
    c"nixl_capi_get_notifs",
    c"nixl_capi_get_xfer_status",
    c"nixl_capi_invalidate_remote_md",
    c"nixl_capi_load_remote_md",
    c"nixl_capi_notif_map_clear",
    c"nixl_capi_notif_map_get_agent_at",
    c"nixl_capi_notif_map_get_notif",
    c"nixl_capi_notif_map_get_notifs_size",
    c"nixl_capi_notif_map_size",
    c"nixl_capi_opt_args_add_backend",
    c"nixl_capi_params_add",
    c"nixl_capi_post_xfer_req",
    c"nixl_capi_reg_dlist_add_desc",
    c"nixl_capi_reg_dlist_clear",
    c"nixl_capi_register_mem",
    c"nixl_capi_release_xfer_req",
    c"nixl_capi_xfer_dlist_add_desc",
    c"nixl_capi_xfer_dlist_clear",
];

/// The library that this process uses, and the plugins that were looked at.
#[derive(Clone)]
struct Loaded {
    file: PathBuf,
    plugins: BTreeSet<String>,
}

static LOADED: PerProcess<Mutex<Option<Loaded>>> = PerProcess::new(|parents| {
    // In a child the libraries are there, too, unless a thread of the parent was just loading them.
    let parents = parents.and_then(|loaded| loaded.try_lock());
    Mutex::new(parents.and_then(|loaded| loaded.clone()))
});

/// A library that is there. What it is good for is not known yet.
pub struct Found {
    candidate: PathBuf,
    /// Where only the loader knows the place.
    _open: Option<Handle>,
}

/// Looks for NIXL's library in `lib_dir`, `$DT_NIXL_LIB_DIR` or the loader's path.
pub fn find(lib_dir: Option<&str>) -> Result<Found> {
    let place = Place::named(lib_dir);
    // A full path when a place was named, else the bare name for the loader.
    let candidate = place.as_ref().map_or(FILE_NAME.into(), Place::file);
    let mut open = None;
    // One that is loaded may be gone from the disk.
    if LOADED.get().lock().is_none() {
        match place {
            Some(place) => place.check()?,
            None => open = Some(open_or_say(&candidate)?),
        }
    }
    Ok(Found {
        candidate,
        _open: open,
    })
}

/// Makes NIXL callable: its library, and the file of `plugin`. Returns the library's file.
pub fn load(found: &Found, plugin: &str) -> Result<PathBuf> {
    let mut loaded = LOADED.get().lock();
    let candidate = &found.candidate;
    let loaded = match &mut *loaded {
        Some(loaded) => {
            check_same(&loaded.file, candidate)?;
            loaded
        }
        none => none.insert(Loaded {
            file: open_library(candidate)?,
            plugins: BTreeSet::new(),
        }),
    };
    if !loaded.plugins.contains(plugin) {
        prepare_plugin(&loaded.file, plugin)?;
        loaded.plugins.insert(plugin.to_owned());
    }
    Ok(loaded.file.clone())
}

/// A path, which the loader takes as it is.
fn is_named(candidate: &Path) -> bool {
    candidate.components().count() > 1
}

fn check_same(file: &Path, candidate: &Path) -> Result<()> {
    let same = |a: &Path, b: &Path| a == b || a.canonicalize().ok() == b.canonicalize().ok();
    if is_named(candidate) && !same(file, candidate) {
        fail!(
            Unavailable,
            "NIXL: this process has loaded {} already and cannot load {} as well; use one folder for all transports",
            file.display(),
            candidate.display()
        );
    }
    Ok(())
}

fn open_or_say(candidate: &Path) -> Result<Handle> {
    let opened = elf::check([candidate.to_owned()]).and_then(|_| Handle::open(candidate));
    opened.map_err(|reason| {
        let reason = match is_named(candidate) && is_foreign(candidate) {
            true => "it was made for another processor",
            false => &*reason,
        };
        Error::new(
            Status::Unavailable,
            format!(
                "NIXL: the library {} cannot be loaded ({reason}); {REMEDY}",
                candidate.display()
            ),
        )
    })
}

fn open_library(candidate: &Path) -> Result<PathBuf> {
    let library = open_or_say(candidate)?;
    let missing: Vec<_> = SYMBOLS
        .iter()
        .filter(|name| library.symbol(name).is_none())
        .collect();
    if let Some(first) = missing.first() {
        fail!(
            Unavailable,
            "NIXL: the library {} lacks {} of the {} functions needed, the first {}: it is too old or no NIXL; {REMEDY}",
            candidate.display(),
            missing.len(),
            SYMBOLS.len(),
            first.to_string_lossy()
        );
    }
    // nixl-sys will ask for the bare name, and must come to this library.
    let by_name = Handle::open_again(Path::new(FILE_NAME));
    if by_name.as_ref() != Some(&library) {
        fail!(
            Unavailable,
            "NIXL: the library {} does not call itself {FILE_NAME}, or another one of that name was loaded before; {REMEDY}",
            candidate.display()
        );
    }
    if nixl_sys::is_stub() {
        fail!(
            Unavailable,
            "NIXL: an earlier attempt in this process found no {FILE_NAME}, and it is looked for once only; start again with its folder in nixl_lib_dir or $DT_NIXL_LIB_DIR"
        );
    }
    let file = library.file_of(SYMBOLS[0]);
    library.keep();
    Ok(file.unwrap_or_else(|| candidate.to_owned()))
}

/// Opens the plugin's file before NIXL does, because NIXL does not say why the loader refuses it.
fn prepare_plugin(library: &Path, plugin: &str) -> Result<()> {
    let Some(file) = plugin_file(library, plugin) else {
        // NIXL knows more places, and plugins that are built in.
        return Ok(());
    };
    let refuse = |reason: String| {
        Error::new(
            Status::Unavailable,
            format!(
                "NIXL: the plugin {} cannot be loaded ({reason}); reinstall NIXL, or install what the loader misses",
                file.display()
            ),
        )
    };
    let libraries = elf::check([file.clone()]).map_err(refuse)?;
    elf::check(ucx::modules(&libraries)).map_err(refuse)?;
    ucx::refuse_second(&file)?;
    let signals = Signals::save();
    let opened = Handle::open(&file);
    signals.restore();
    let handle = opened.map_err(refuse)?;
    ucx::tell_version(&handle);
    ucx::configure(&handle);
    handle.keep();
    Ok(())
}

fn plugin_file(library: &Path, plugin: &str) -> Option<PathBuf> {
    let name = format!("libplugin_{plugin}.so");
    let named = std::env::var_os("NIXL_PLUGIN_DIR").map(PathBuf::from);
    let beside = library.parent().map(|dir| dir.join("plugins"));
    [named, beside]
        .into_iter()
        .flatten()
        .map(|dir| dir.join(&name))
        .find(|file| file.exists())
}

/// A library that is open while this lives.
#[derive(PartialEq, Eq)]
pub struct Handle(*mut c_void);

impl Handle {
    fn open(path: &Path) -> std::result::Result<Handle, String> {
        Handle::open_with(path, libc::RTLD_NOW | libc::RTLD_LOCAL).ok_or_else(|| {
            // SAFETY: dlerror returns NULL or a string that lives until this thread's next call.
            let reason = unsafe {
                let text = libc::dlerror();
                (!text.is_null()).then(|| CStr::from_ptr(text).to_string_lossy().into_owned())
            };
            let reason = reason.unwrap_or_else(|| "the loader does not say why".into());
            // Whoever shows it names the file himself.
            let prefix = format!("{}: ", path.display());
            reason.strip_prefix(&prefix).unwrap_or(&reason).to_owned()
        })
    }

    /// Only if it is loaded already.
    pub fn open_again(path: &Path) -> Option<Handle> {
        Handle::open_with(path, libc::RTLD_NOW | libc::RTLD_LOCAL | libc::RTLD_NOLOAD)
    }

    fn open_with(path: &Path, flags: c_int) -> Option<Handle> {
        let path = CString::new(path.as_os_str().as_bytes()).ok()?;
        // SAFETY: `path` is a NUL-terminated string. The constructors that run are NIXL's.
        let handle = unsafe { libc::dlopen(path.as_ptr(), flags) };
        (!handle.is_null()).then_some(Handle(handle))
    }

    /// The program and everything in its global scope.
    pub fn everywhere() -> Handle {
        Handle(libc::RTLD_DEFAULT)
    }

    /// A function of this library or of those that it needs.
    pub fn symbol(&self, name: &CStr) -> Option<*mut c_void> {
        // SAFETY: the handle is open, and `name` is NUL-terminated.
        let symbol = unsafe { libc::dlsym(self.0, name.as_ptr()) };
        (!symbol.is_null()).then_some(symbol)
    }

    /// The file that a function comes from.
    pub fn file_of(&self, name: &CStr) -> Option<PathBuf> {
        super::signals::file_of(self.symbol(name)?).map(PathBuf::from)
    }

    /// The library stays for the life of the process: its threads and destructors need it.
    fn keep(self) {
        std::mem::forget(self);
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.0 != libc::RTLD_DEFAULT {
            // SAFETY: the handle came from dlopen and is given back once; nothing of it is in use.
            unsafe { libc::dlclose(self.0) };
        }
    }
}
