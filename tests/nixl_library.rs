//! NIXL's library as it may be found: missing, old, bent.

mod nixl_support;

use std::os::unix::fs::symlink;
use std::process::Command;

use datatransport::error::Status;
use datatransport::transport::{BackendChoice, NixlConfig};
use nixl_support::*;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

const SCENARIOS: &[(&str, fn())] = &[
    ("bent_library", bent_library),
    ("no_library", no_library),
    ("no_failure_detection", no_failure_detection),
    ("a_broken_neighbour", a_broken_neighbour),
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
    a_broken_neighbour_default: a_broken_neighbour Default;
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
