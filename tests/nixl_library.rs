//! NIXL's library as it may be found: missing, old, bent.

mod nixl_support;

use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{PermissionsExt, symlink};
use std::path::Path;
use std::process::Command;

use datatransport::backend::Kind;
use datatransport::error::Status;
use datatransport::transport::{BackendChoice, NixlConfig};
use nixl_support::*;
use rustix::fs::{CWD, FileType};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const SCENARIOS: &[(&str, fn())] = &[
    ("bent_library", bent_library),
    ("no_library", no_library),
    ("named_places", named_places),
    ("no_failure_detection", no_failure_detection),
    ("a_broken_neighbour", a_broken_neighbour),
    ("damaged_files", damaged_files),
    ("damaged_files_elsewhere", damaged_files_elsewhere),
    ("bad_configuration", bad_configuration),
];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios! {
    no_failure_detection_default: no_failure_detection Default;
    bent_library_default: bent_library Default;
    no_library_default: no_library Default;
    named_places_default: named_places Default;
    a_broken_neighbour_default: a_broken_neighbour Default;
    damaged_files_default: damaged_files Default;
    damaged_files_elsewhere_default: damaged_files_elsewhere Default;
    bad_configuration_default: bad_configuration Default;
}

/// A C text with the functions of the real library, one left out.
fn all_functions_but(left_out: &str) -> String {
    let library = std::fs::read(lib_dir().unwrap().join("libnixl_capi.so")).unwrap();
    let names: std::collections::BTreeSet<_> = library
        .split(|byte| *byte == 0)
        .filter_map(|string| std::str::from_utf8(string).ok())
        .filter(|string| string.starts_with("nixl_capi_") && *string != left_out)
        .filter(|string| {
            string
                .bytes()
                .all(|byte| byte.is_ascii_lowercase() || byte == b'_')
        })
        .collect();
    assert!(names.len() > 37);
    let functions = names
        .iter()
        .map(|name| format!("int {name}(void) {{ return 0; }}\n"));
    functions.collect()
}

/// NIXL cannot read its own configuration file: whoever asks for NIXL or takes what there is learns which.
fn bad_configuration() {
    let folder = Folder::new("configuration");
    let file = folder.0.join("named.cfg");
    // SAFETY: no other thread of this process looks at its environment.
    unsafe { std::env::set_var("NIXL_CONFIG_FILE", &file) };
    let words = ["named.cfg cannot be read", "NIXL_CONFIG_FILE"];
    unusable(NixlConfig::default(), &words);
    // Nobody will ever write into it.
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(CWD, &file, FileType::Fifo, mode, 0).unwrap();
    unusable(NixlConfig::default(), &["named.cfg is a FIFO", words[1]]);
    std::fs::remove_file(&file).unwrap();
    std::fs::write(&file, "a =").unwrap();
    let error = create(BackendChoice::Nixl, NixlConfig::default());
    let error = error.err().expect("it was taken");
    assert_eq!(error.status, Status::Backend, "{error}");
    assert!(error.message.contains("named.cfg"), "{error}");
    std::fs::write(&file, "").unwrap();
    create(BackendChoice::Nixl, NixlConfig::default()).unwrap();
}

/// Libraries that are not what they should be: a sentence each, and then the right one still loads.
fn bent_library() {
    let name = "libnixl_capi.so";
    let folder = Folder::new("bent");
    unusable(
        in_dir(&folder.0.join("nowhere")),
        &["nowhere", "nixl_lib_dir"],
    );
    std::fs::write(folder.0.join(name), "no library").unwrap();
    unusable(in_dir(&folder.0), &[name, "cannot be loaded"]);
    std::fs::remove_file(folder.0.join(name)).unwrap();
    folder.compile(name, "int nixl_capi_create_agent(void) { return 0; }", name);
    unusable(in_dir(&folder.0), &["lacks 38 of the 38", "too old", name]);
    // An older one: all but the newest function.
    folder.compile(
        name,
        &all_functions_but("nixl_capi_create_configured_agent"),
        name,
    );
    unusable(
        in_dir(&folder.0),
        &[
            "lacks 1 of the 38",
            "nixl_capi_create_configured_agent",
            "install NIXL",
        ],
    );
    // All functions, but nixl-sys would not find it by its name.
    folder.compile(name, &all_functions_but(""), "libother.so");
    unusable(in_dir(&folder.0), &["does not call itself", name]);

    let real = lib_dir().unwrap();
    let twins = Folder::new("plugins");
    std::fs::create_dir(twins.0.join("plugins")).unwrap();
    // NIXL itself loads, but its plugin asks for a library that is not there.
    folder.compile(
        "libmissing.so",
        "int missing(void) { return 0; }",
        "libmissing_dt.so",
    );
    let status = Command::new("cc")
        .args(["-shared", "-fPIC", "-Wl,--no-as-needed", "-o"])
        .arg(twins.0.join("plugins/libplugin_UCX.so"))
        .args(["-x", "c", "/dev/null", "-x", "none"])
        .arg(folder.0.join("libmissing.so"))
        .status()
        .unwrap();
    assert!(status.success());
    // SAFETY: no other thread of this scenario reads the environment.
    unsafe { std::env::set_var("NIXL_PLUGIN_DIR", twins.0.join("plugins")) };
    unusable(in_dir(&real), &["libplugin_UCX.so", "libmissing_dt.so"]);
    // SAFETY: as above.
    unsafe { std::env::remove_var("NIXL_PLUGIN_DIR") };
    unusable(
        NixlConfig {
            plugin: Some("NOSUCH".into()),
            ..in_dir(&real)
        },
        &[
            "libnixl_capi.so",
            "NOSUCH",
            "libplugin_NOSUCH.so",
            "NIXL_PLUGIN_DIR",
        ],
    );
    let transport = create(BackendChoice::Nixl, in_dir(&real)).unwrap();
    // One NIXL in a process.
    unusable(in_dir(&folder.0), &["has loaded", name]);
    assert!(create(BackendChoice::Nixl, NixlConfig::default()).is_ok());
    transport.close(PATIENCE).unwrap();
}

fn no_library() {
    let real = lib_dir().unwrap();
    // SAFETY: no other thread of this scenario reads the environment.
    unsafe { std::env::remove_var("DT_NIXL_LIB_DIR") };
    unusable(
        NixlConfig::default(),
        &["libnixl_capi.so", "DT_NIXL_LIB_DIR"],
    );
    unusable(
        NixlConfig::default(),
        &["libnixl_capi.so", "DT_NIXL_LIB_DIR"],
    );
    // What lies where the process is, here one for a processor that nobody has, is not what is spoken of.
    let folder = Folder::new("elsewhere");
    std::fs::write(
        folder.0.join("libnixl_capi.so"),
        b"\x7fELF\x02\x01\x01\0\0\0\0\0\0\0\0\0\x03\0\xff\xff",
    )
    .unwrap();
    std::env::set_current_dir(&folder.0).unwrap();
    unusable(
        NixlConfig::default(),
        &["No such file or directory", "DT_NIXL_LIB_DIR"],
    );
    std::env::set_current_dir("/").unwrap();
    // Nor is anything prepared for it: that there is no room would be another error.
    let few = Rlimit {
        current: Some(40),
        ..getrlimit(Resource::Nofile)
    };
    setrlimit(Resource::Nofile, few).unwrap();
    unavailable(NixlConfig::default(), &["libnixl_capi.so"]);
    unavailable(in_dir(&real.join("nowhere")), &["nowhere"]);
    let error = create(BackendChoice::Nixl, in_dir(&real)).err().unwrap();
    assert_eq!(error.status, Status::NoMemory, "{error}");
}

/// What people name in place of the folder, and folders that cannot be used.
fn named_places() {
    let real = lib_dir().unwrap();
    let name = "libnixl_capi.so";
    let folder = Folder::new("named");
    let here = |entry: &str| folder.0.join(entry);
    let at = |entry: &str| in_dir(&here(entry));

    let nowhere = here("nowhere");
    // SAFETY: no other thread of this scenario reads the environment.
    unsafe { std::env::set_var("DT_NIXL_LIB_DIR", &nowhere) };
    for config in [NixlConfig::default(), in_dir(Path::new(""))] {
        unusable(
            config,
            &["$DT_NIXL_LIB_DIR names", "nowhere, which is not there"],
        );
    }
    let words = ["nixl_lib_dir names", "nowhere", "is not there"];
    unusable(at(&format!("nowhere/{name}")), &words);
    std::fs::create_dir(here("bare")).unwrap();
    unusable(at("bare"), &["bare, which is a folder without", name]);
    std::fs::write(here("libnixl.so"), "").unwrap();
    unusable(
        at("libnixl.so"),
        &["libnixl.so, which is neither a folder nor a", name],
    );
    unusable(
        at("libnixl.so/more"),
        &["cannot be looked at (Not a directory"],
    );

    // The loader would wait for someone who writes into it.
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(CWD, here(name), FileType::Fifo, mode, 0).unwrap();
    unusable(in_dir(&folder.0), &["which has a", name, "no regular file"]);
    unusable(
        at(name),
        &[name, "libnixl_capi.so, which is no regular file"],
    );
    std::fs::remove_file(here(name)).unwrap();
    std::fs::create_dir(here(name)).unwrap();
    unusable(in_dir(&folder.0), &["no regular file"]);
    std::fs::remove_dir(here(name)).unwrap();
    std::fs::write(here(name), "").unwrap();
    unusable(at(name), &[name, "cannot be loaded", "file too short"]);
    let mut foreign = std::fs::read(real.join(name)).unwrap();
    // Number 8 is MIPS.
    foreign[18..20].copy_from_slice(&8u16.to_le_bytes());
    std::fs::write(here(name), foreign).unwrap();
    unusable(in_dir(&folder.0), &[name, "made for another processor"]);

    let closed = std::fs::Permissions::from_mode(0o000);
    std::fs::create_dir(here("closed")).unwrap();
    std::fs::set_permissions(here("closed"), closed).unwrap();
    // The superuser may look into it.
    // SAFETY: a system call on a number; it is about this thread only.
    let user = unsafe { libc::setfsuid(65_534) };
    unavailable(
        at("closed"),
        &["closed, which cannot be looked into (Permission"],
    );
    // SAFETY: as above.
    unsafe { libc::setfsuid(user as libc::uid_t) };

    // SAFETY: as above.
    unsafe { std::env::set_var("DT_NIXL_LIB_DIR", "") };
    unusable(in_dir(Path::new("")), &[name, "cannot be loaded"]);

    // The file itself, and that from a folder that is left afterwards.
    std::env::set_current_dir(real.parent().unwrap()).unwrap();
    let relative = Path::new(real.file_name().unwrap()).join(name);
    // SAFETY: as above.
    unsafe { std::env::set_var("DT_NIXL_LIB_DIR", relative) };
    let config = NixlConfig::default();
    let first = create(BackendChoice::Auto, config).unwrap_or_else(|error| panic!("{error}"));
    assert_eq!(first.backend_kind(), Kind::Nixl);
    std::env::set_current_dir("/").unwrap();
    for dir in [&real, &real.join(name)] {
        create(BackendChoice::Nixl, in_dir(dir)).unwrap_or_else(|error| panic!("{error}"));
    }
    unusable(NixlConfig::default(), &["has loaded", name]);
    first.close(PATIENCE).unwrap();
}

fn no_failure_detection() {
    // SAFETY: no other thread of this scenario reads the environment.
    unsafe { std::env::set_var("UCX_TLS", "posix,cma") };
    unusable(
        NixlConfig::default(),
        &["libnixl_capi.so", "UCX_TLS", "add tcp"],
    );
}

/// Plugins that nobody has asked for may be as broken as they like.
fn a_broken_neighbour() {
    let real = lib_dir().unwrap();
    let folder = Folder::new("broken-neighbour");
    let plugins = folder.0.join("nixl/plugins");
    std::fs::create_dir_all(&plugins).unwrap();
    // The plugin looks for UCX from where it lies itself.
    let ucx = "nixl_cu12.libs";
    symlink(real.parent().unwrap().join(ucx), folder.0.join(ucx)).unwrap();
    let name = "libplugin_UCX.so";
    symlink(real.join("plugins").join(name), plugins.join(name)).unwrap();
    std::fs::write(plugins.join("libplugin_BROKEN.so"), "no library").unwrap();
    // SAFETY: no other thread of this scenario reads the environment.
    unsafe { std::env::set_var("NIXL_PLUGIN_DIR", &plugins) };
    let transport = create(BackendChoice::Nixl, in_dir(&real)).unwrap();
    transport.close(PATIENCE).unwrap();
    // It was this folder that counted.
    unusable(
        NixlConfig {
            plugin: Some("BROKEN".into()),
            ..in_dir(&real)
        },
        &["broken-neighbour", "libplugin_BROKEN.so"],
    );
}

/// An installation of which a part is cut short, or a FIFO: the loader would end the process, or wait.
fn damaged_files() {
    let nixl = Installation::new("damaged");
    let fifo = |file: &Path| {
        let mode = rustix::fs::Mode::RWXU;
        rustix::fs::mknodat(CWD, file, FileType::Fifo, mode, 0).unwrap();
    };
    let refused = |dir: &str, start: &str| {
        let file = nixl.file(dir, start);
        let whole = std::fs::read(&file).unwrap();
        let cut = |file: &Path| std::fs::write(file, &whole[..whole.len() / 2]).unwrap();
        nixl.with(&file, cut, || {
            unusable(in_dir(&nixl.lib_dir()), &[start, "is cut short"]);
        });
        nixl.with(&file, fifo, || {
            unusable(in_dir(&nixl.lib_dir()), &[start, "no regular file"]);
        });
    };
    let (ucx, modules) = ("../nixl_cu12.libs", "../nixl_cu12.libs/ucx");
    // The library, what it needs, and what that needs, elsewhere.
    refused("", "libnixl_capi.so");
    refused("", "libnixl_build.so");
    refused(ucx, "libabsl_base-");
    // Where only the loader knows the place.
    let needed = nixl.file("", "libnixl_build.so");
    // SAFETY: no other thread of this scenario reads the environment.
    unsafe {
        std::env::remove_var("DT_NIXL_LIB_DIR");
        std::env::set_var("LD_LIBRARY_PATH", nixl.lib_dir());
    }
    nixl.with(&needed, fifo, || {
        let words = ["libnixl_build.so", "no regular file"];
        unusable(NixlConfig::default(), &words);
    });
    // SAFETY: as above.
    unsafe { std::env::remove_var("LD_LIBRARY_PATH") };
    // The plugin, its UCX, and the modules of that.
    refused("plugins", "libplugin_UCX.so");
    refused(ucx, "libucs-");
    refused(modules, "libuct_cma.so");
    // What nobody asks for may be as damaged as it likes: NIXL's other plugins, UCX's excluded modules, and
    // what lies where the process is.
    std::env::set_current_dir(nixl.lib_dir().parent().unwrap()).unwrap();
    fifo(Path::new("libstdc++.so.6"));
    // SAFETY: as above.
    unsafe { std::env::set_var("UCX_MODULES", "^ib,cuda") };
    let files = [
        nixl.file("plugins", "libplugin_OBJ.so"),
        nixl.file(modules, "libuct_ib.so"),
        nixl.file(modules, "libucm_cuda.so"),
    ];
    for file in files {
        std::fs::remove_file(&file).unwrap();
        fifo(&file);
    }
    let transport = create(BackendChoice::Nixl, in_dir(&nixl.lib_dir())).unwrap();
    // One that is in use is not looked at again.
    nixl.with(&needed, fifo, || {
        create(BackendChoice::Nixl, in_dir(&nixl.lib_dir())).unwrap();
    });
    transport.close(PATIENCE).unwrap();
}

/// What the library needs is looked at wherever the loader finds it.
fn damaged_files_elsewhere() {
    let (name, dep) = ("libnixl_capi.so", "libdep_dt.so");
    let folder = Folder::new("elsewhere");
    folder.compile(dep, "int full[99999] = {1};", dep);
    let dep_file = folder.0.join(dep);
    let whole = std::fs::read(&dep_file).unwrap();
    let cut = &whole[..whole.len() / 2];
    // In a folder of its own, and set as the environment says.
    let library = |dir: &OsStr, needed: &Path, rpath: &str| {
        let dir = folder.0.join(dir);
        std::fs::create_dir(&dir).unwrap();
        let rpath = format!("-Wl,-rpath,{rpath}");
        let more = [needed.as_os_str(), OsStr::new(&rpath)];
        folder.compile_with(name, "int none(void) { return 0; }", name, &more);
        std::fs::rename(folder.0.join(name), dir.join(name)).unwrap();
        // SAFETY: no other thread of this scenario reads the environment.
        unsafe { std::env::set_var("DT_NIXL_LIB_DIR", &dir) };
        dir
    };
    let refused = || unusable(NixlConfig::default(), &[dep, "is cut short"]);

    // A name that is no UTF-8.
    let dir = library(OsStr::from_bytes(b"\xff"), &dep_file, "$ORIGIN");
    std::fs::write(dir.join(dep), cut).unwrap();
    refused();

    // Behind one that was made for another processor. Number 8 is MIPS.
    let mut foreign = whole.clone();
    foreign[18] = 8;
    let dir = library("foreign".as_ref(), &dep_file, "${ORIGIN}/first:$ORIGIN");
    std::fs::create_dir(dir.join("first")).unwrap();
    std::fs::write(dir.join("first").join(dep), foreign).unwrap();
    std::fs::write(dir.join(dep), cut).unwrap();
    refused();

    // Both signs stand between the folders of the environment.
    let dir = library("semicolon".as_ref(), &dep_file, "/nowhere");
    std::fs::create_dir(dir.join("more")).unwrap();
    std::fs::write(dir.join("more").join(dep), cut).unwrap();
    let folders = format!("/nowhere;{}/more", dir.display());
    // SAFETY: as above.
    unsafe { std::env::set_var("LD_LIBRARY_PATH", folders) };
    refused();

    // In the folder that the process is in, of which the library is asked what lies beside it.
    let dir = library("here".as_ref(), &dep_file, "$ORIGIN/more");
    std::fs::create_dir(dir.join("more")).unwrap();
    std::fs::write(dir.join("more").join(dep), cut).unwrap();
    std::env::set_current_dir(&dir).unwrap();
    // SAFETY: as above.
    unsafe {
        std::env::remove_var("DT_NIXL_LIB_DIR");
        std::env::set_var("LD_LIBRARY_PATH", ":");
    }
    refused();

    // Which is none of the loader's folders otherwise.
    std::fs::remove_file(name).unwrap();
    let mode = rustix::fs::Mode::RWXU;
    rustix::fs::mknodat(CWD, name, FileType::Fifo, mode, 0).unwrap();
    // SAFETY: as above.
    unsafe { std::env::remove_var("LD_LIBRARY_PATH") };
    unusable(NixlConfig::default(), &[name, "cannot be loaded"]);

    // By a path of its own, for it has no other name.
    let unnamed = folder.0.join("unnamed.so");
    let status = Command::new("cc")
        .args(["-shared", "-x", "c", "/dev/null", "-o"])
        .arg(&unnamed)
        .status();
    assert!(status.unwrap().success());
    library("path".as_ref(), &unnamed, "/nowhere");
    std::fs::write(&unnamed, cut).unwrap();
    unusable(NixlConfig::default(), &["unnamed.so", "is cut short"]);
}
