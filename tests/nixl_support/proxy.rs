//! NIXL behind a library that makes chosen calls of it fail: see `tests/nixl_proxy/proxy.c`.
//!
//! A scenario that runs [`behind_proxy`] has the proxy between itself and NIXL; its peers do not.

use std::ffi::{CStr, CString, c_char, c_long};
use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::OnceLock;

use super::*;

const NAME: &str = "libnixl_capi.so";

/// Runs a scenario in a process of its own that has the proxy for a NIXL.
pub fn behind_proxy(name: &str, tls: Tls) -> Option<Outcome> {
    static FOLDER: OnceLock<Option<PathBuf>> = OnceLock::new();
    let folder = FOLDER.get_or_init(|| Some(build(&lib_dir()?))).as_ref()?;
    let folder = folder.to_str().expect("a path in UTF-8");
    run_with(
        name,
        tls,
        // NIXL prints each failure of its own to stderr.
        &[("DT_NIXL_LIB_DIR", folder), ("NIXL_LOG_LEVEL", "FATAL")],
    )
}

/// The folder with the proxy, the real library and its plugins.
fn build(real: &Path) -> PathBuf {
    use std::os::unix::fs::symlink;
    // Its own, because the tests of several files may run at the same time.
    let file = std::env::current_exe().unwrap();
    let folder = format!("nixl_proxy-{}", file.file_stem().unwrap().to_str().unwrap());
    let folder = Path::new(env!("CARGO_TARGET_TMPDIR")).join(folder);
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).unwrap();
    symlink(real, folder.join("real")).unwrap();
    symlink("real/plugins", folder.join("plugins")).unwrap();
    let sources = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/nixl_proxy");
    let status = Command::new("cc")
        .args(["-std=gnu11", "-D_GNU_SOURCE", "-O1", "-g", "-Wall"])
        // Other compilers than gcc warn of functions without prototypes.
        .args(["-Wextra", "-Werror", "-Wno-deprecated-non-prototype"])
        .args(["-shared", "-fPIC", "-o"])
        .arg(folder.join(NAME))
        .args(["plan.c", "objects.c", "proxy.c"].map(|file| sources.join(file)))
        .args([&format!("-Wl,-soname,{NAME}"), "-ldl", "-pthread"])
        .status()
        .expect("cc is there, for nixl-sys needs it");
    assert!(status.success());
    folder
}

/// The kinds of what the library holds of NIXL, by the proxy's letters.
const KINDS: &str = "abcoglnrpm";

/// The holdings of a process whose transports are closed.
pub const NOTHING: &str = "a0 b0 c0 o0 g0 l0 n0 r0 p0 m0";

/// The controls of the proxy that this process has for a NIXL.
pub struct Proxy {
    plan: extern "C" fn(*const c_char),
    count: extern "C" fn(*const c_char) -> c_long,
    journal: extern "C" fn() -> *const c_char,
    forget: extern "C" fn(),
}

impl Proxy {
    /// Opens the library if nothing did so far.
    pub fn here() -> Proxy {
        let file = lib_dir().expect("scenarios run where NIXL is").join(NAME);
        let file = CString::new(file.to_str().unwrap()).unwrap();
        // SAFETY: a path; the constructor of the proxy may run anywhere.
        let library = unsafe { libc::dlopen(file.as_ptr(), libc::RTLD_NOW | libc::RTLD_LOCAL) };
        let symbol = |name: &CStr| {
            // SAFETY: the library is open and never closed.
            let symbol = unsafe { libc::dlsym(library, name.as_ptr()) };
            assert!(!symbol.is_null(), "no {name:?}: this is not the proxy");
            symbol
        };
        // SAFETY: these are the types that proxy.c, plan.h and objects.h give them.
        unsafe {
            Proxy {
                plan: std::mem::transmute::<*mut libc::c_void, extern "C" fn(*const c_char)>(
                    symbol(c"dt_proxy_plan"),
                ),
                count: std::mem::transmute::<
                    *mut libc::c_void,
                    extern "C" fn(*const c_char) -> c_long,
                >(symbol(c"dt_proxy_count")),
                journal: std::mem::transmute::<*mut libc::c_void, extern "C" fn() -> *const c_char>(
                    symbol(c"dt_proxy_journal"),
                ),
                forget: std::mem::transmute::<*mut libc::c_void, extern "C" fn()>(symbol(
                    c"dt_proxy_forget",
                )),
            }
        }
    }

    /// What shall fail from now on: see plan.h.
    pub fn plan(&self, rules: &str) {
        (self.plan)(CString::new(rules).unwrap().as_ptr());
    }

    pub fn count(&self, what: &str) -> i64 {
        (self.count)(CString::new(what).unwrap().as_ptr())
    }

    /// How often the plan was hit.
    pub fn fired(&self) -> i64 {
        self.count("fired")
    }

    /// Requests that their owner believes ended, but that run.
    pub fn zombies(&self) -> i64 {
        self.count("zombies")
    }

    /// How many of each kind live.
    pub fn holdings(&self) -> String {
        let kinds = KINDS.chars().map(|kind| {
            let count = self.count(&kind.to_string());
            format!("{kind}{count}")
        });
        kinds.collect::<Vec<_>>().join(" ")
    }

    /// What was given back since [`forget`](Proxy::forget), in order.
    pub fn journal(&self) -> String {
        // SAFETY: it is a string of the proxy, which changes it in no other thread.
        unsafe { CStr::from_ptr((self.journal)()) }
            .to_str()
            .unwrap()
            .to_owned()
    }

    pub fn forget(&self) {
        (self.forget)();
    }
}

/// `test: scenario setting;` makes tests that run a scenario behind the proxy.
macro_rules! scenarios_behind_proxy {
    ($($test:ident: $scenario:ident $tls:ident;)+) => {$(
        #[test]
        fn $test() {
            behind_proxy(stringify!($scenario), Tls::$tls);
        }
    )+};
}

pub(crate) use scenarios_behind_proxy;

/// A peer that has the real NIXL.
pub fn honest_peer(name: &str, blocks: usize, block_len: usize) -> Peer {
    let real = lib_dir().unwrap().join("real");
    Peer::start_with(
        name,
        blocks,
        block_len,
        &[("DT_NIXL_LIB_DIR", real.to_str().unwrap())],
    )
}
