//! UCX, which NIXL's plugin brings along: that there is one of it, whole, and set as it has to be.

use std::ffi::{CStr, c_char, c_int};
use std::path::{Path, PathBuf};

use super::elf;
use super::library::Handle;
use crate::error::{Result, fail};
use crate::log::log;

/// UCX's InfiniBand module brings a second libnl into processes that have the system's; their
/// destructors then crash in exit(). Without an RDMA device the module is of no use.
const WITHOUT_RDMA: &CStr = c"^ib";

fn has_rdma() -> bool {
    Path::new("/sys/class/infiniband").exists()
}

/// Refuses a plugin that would bring a UCX of its own into a process that has one in its global
/// scope: the loader would tie the functions of both together. Seen with that: hangs, and crashes
/// where the versions differ. RTLD_DEEPBIND keeps the libraries apart, but not the modules that UCX
/// opens by itself, which then end up in the lists of the other UCX.
///
/// It must be known before the plugin is opened, because the constructors of UCX mix too.
pub fn refuse_second(plugin: &Path) -> Result<()> {
    let needed = elf::needed(plugin);
    let is_ucp = |name: &PathBuf| file_name(name).starts_with("libucp");
    let Some(needed) = needed.into_iter().find(is_ucp) else {
        return Ok(());
    };
    // Loaded already, in whatever scope: the plugin will get this one.
    let own = Handle::open_again(&needed);
    for name in UCX_SYMBOLS {
        let Some(foreign) = Handle::everywhere().file_of(name) else {
            continue;
        };
        if own.as_ref().and_then(|own| own.file_of(name)).as_ref() != Some(&foreign) {
            fail!(
                Unavailable,
                "NIXL: this process has a UCX in its global scope, {}, which would mix with {}, which the plugin {} needs; load the first one privately (RTLD_LOCAL, no LD_PRELOAD), or use a NIXL that was built for it",
                foreign.display(),
                needed.display(),
                plugin.display()
            );
        }
    }
    Ok(())
}

/// One function of each library of UCX.
const UCX_SYMBOLS: [&CStr; 4] = [
    c"ucp_get_version_string",
    c"uct_query_components",
    c"ucs_global_opts_set_value",
    c"ucm_set_event_handler",
];

pub fn tell_version(plugin: &Handle) {
    let name = UCX_SYMBOLS[0];
    let (Some(symbol), Some(file)) = (plugin.symbol(name), plugin.file_of(name)) else {
        return;
    };
    // SAFETY: UCX declares `const char *ucp_get_version_string(void)`, and the plugin is open.
    let get: extern "C" fn() -> *const c_char = unsafe { std::mem::transmute(symbol) };
    // SAFETY: what it returns is a constant of the library.
    let version = unsafe { CStr::from_ptr(get()) };
    log!(
        Info,
        "NIXL uses UCX {} of {}",
        version.to_string_lossy(),
        file.display()
    );
}

/// Two settings of the UCX that came with the plugin; the user's environment has precedence.
pub fn configure(plugin: &Handle) {
    let Some(set) = plugin.symbol(c"ucs_global_opts_set_value") else {
        return;
    };
    // SAFETY: UCX declares `ucs_status_t ucs_global_opts_set_value(const char *, const char *)`; the
    // status is an enum that fits `c_int`, and the plugin is never unloaded once this was called.
    let set: extern "C" fn(*const c_char, *const c_char) -> c_int =
        unsafe { std::mem::transmute(set) };
    let apply = |variable: &str, name: &CStr, value: &CStr| {
        if std::env::var_os(variable).is_none() && set(name.as_ptr(), value.as_ptr()) != 0 {
            log!(
                Warn,
                "NIXL: UCX does not take the setting {name:?} = {value:?}"
            );
        }
    };
    if !has_rdma() {
        apply("UCX_MODULES", c"MODULES", WITHOUT_RDMA);
    }
    // What UCX has to say about a dead peer comes back as a status; a library does not print.
    apply("UCX_LOG_LEVEL", c"LOG_LEVEL", c"fatal");
}

/// The modules that UCX opens by itself when it starts, of all that lie beside those of `libraries` that
/// are UCX's.
pub fn modules(libraries: &[PathBuf]) -> Vec<PathBuf> {
    let setting = std::env::var("UCX_MODULES").unwrap_or_else(|_| match has_rdma() {
        true => "all".into(),
        false => WITHOUT_RDMA.to_string_lossy().into_owned(),
    });
    let folder = |file: &PathBuf| Some(file.parent()?.join("ucx"));
    let ucs = |file: &&PathBuf| file_name(file).starts_with("libucs");
    let beside = libraries.iter().find(ucs).and_then(folder);
    let named = std::env::var_os("UCX_MODULE_DIR").map(PathBuf::from);
    let folders = beside.into_iter().chain(named);
    let files = folders.filter_map(|dir| dir.read_dir().ok()).flatten();
    let files = files.filter_map(|entry| Some(entry.ok()?.path()));
    files
        .filter(|file| is_opened(file_name(file), &setting))
        .collect()
}

fn file_name(file: &Path) -> &str {
    file.file_name()
        .and_then(|name| name.to_str())
        .unwrap_or_default()
}

/// `libuct_ib_mlx5.so.0` is the module mlx5 of the module ib. What UCX's own programs have for themselves
/// has another beginning.
fn is_opened(name: &str, setting: &str) -> bool {
    let Some((name, _)) = name.split_once(".so") else {
        return false;
    };
    let parts = name
        .strip_prefix("libuct_")
        .or_else(|| name.strip_prefix("libucm_"));
    let (refused, listed) = match setting.strip_prefix('^') {
        Some(listed) => (true, listed),
        None => (false, setting),
    };
    let is_listed = |part: &str| listed.split(',').any(|one| one == part);
    parts.is_some_and(|parts| {
        listed == "all" || parts.split('_').all(|part| is_listed(part) != refused)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_those_of_the_setting() {
        let names = [
            "libuct_cma.so.0.0.0",
            "libuct_ib.so.0.0.0",
            "libuct_ib_mlx5.so.0",
            "libucm_cuda.so",
            "libucx_perftest_cuda.so.0",
            "libuct_cma.la",
        ];
        let opened = |setting| {
            let all = names.iter().enumerate();
            let opened = all.filter(|(_, name)| is_opened(name, setting));
            opened.map(|(at, _)| at).collect::<Vec<_>>()
        };
        assert_eq!(opened("all"), [0, 1, 2, 3]);
        assert_eq!(opened("^ib"), [0, 3]);
        assert_eq!(opened("^cuda,mlx5"), [0, 1]);
        assert_eq!(opened("cma,ib"), [0, 1]);
        assert_eq!(opened(""), [0; 0]);
    }
}
