//! NIXL's library as it may be found: missing, old, bent.

mod nixl_support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use datatransport::error::{Error, Status};
use datatransport::region::{LocalRegion, Region};
use datatransport::transport::{BackendChoice, Config, NixlConfig, Transport};
use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[
    ("bent_library", bent_library),
    ("no_library", no_library),
    ("no_failure_detection", no_failure_detection),
];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios! {
    no_failure_detection_default: no_failure_detection Default;
    bent_library_default: bent_library Default;
    no_library_default: no_library Default;
}

const BLOCK: usize = 4096;

fn create(backend: BackendChoice, nixl: NixlConfig) -> Result<Transport, Error> {
    let memory = Box::leak(vec![0u8; 16 * BLOCK].into_boxed_slice());
    Transport::create(Config {
        // SAFETY: the memory outlives the transport.
        region: unsafe {
            LocalRegion::new(Region::new(memory.as_ptr() as u64, 16, BLOCK as u64).unwrap())
        },
        region_fd: None,
        backend,
        nixl,
        agent_name: None,
        config_json: None,
        poll_budget: Duration::from_micros(500),
    })
}

fn in_dir(dir: &Path) -> NixlConfig {
    NixlConfig {
        lib_dir: Some(dir.to_str().unwrap().into()),
        ..NixlConfig::default()
    }
}

fn unavailable(config: NixlConfig, words: &[&str]) {
    let error = create(BackendChoice::Nixl, config)
        .err()
        .expect("it was taken");
    assert_eq!(error.status, Status::Unavailable, "{error}");
    for word in words {
        assert!(error.message.contains(word), "no {word:?} in: {error}");
    }
}

/// A folder that is gone when the test is.
struct Folder(PathBuf);

impl Folder {
    fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("dt-nixl-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// A shared library of this C text.
    fn compile(&self, file: &str, text: &str, soname: &str) {
        let source = self.0.join("source.c");
        std::fs::write(&source, text).unwrap();
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-o"])
            .arg(self.0.join(file))
            .arg(&source)
            .arg(format!("-Wl,-soname,{soname}"))
            .status()
            .expect("cc is there, for nixl-sys needs it");
        assert!(status.success());
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// Libraries that are not what they should be: a sentence each, and then the right one still loads.
fn bent_library() {
    let name = "libnixl_capi.so";
    let folder = Folder::new("bent");
    unavailable(
        in_dir(&folder.0.join("nowhere")),
        &["nowhere", "nixl_lib_dir"],
    );
    std::fs::write(folder.0.join(name), "no library").unwrap();
    unavailable(in_dir(&folder.0), &[name, "cannot be loaded"]);
    std::fs::remove_file(folder.0.join(name)).unwrap();
    folder.compile(name, "int nixl_capi_create_agent(void) { return 0; }", name);
    unavailable(in_dir(&folder.0), &["lacks 37 of the 37", "too old"]);

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
    unavailable(in_dir(&real), &["libplugin_UCX.so", "libmissing_dt.so"]);
    // SAFETY: as above.
    unsafe { std::env::remove_var("NIXL_PLUGIN_DIR") };
    unavailable(
        NixlConfig {
            plugin: Some("NOSUCH".into()),
            ..in_dir(&real)
        },
        &["NOSUCH"],
    );
    let transport = create(BackendChoice::Nixl, in_dir(&real)).unwrap();
    // One NIXL in a process.
    unavailable(in_dir(&folder.0), &["has loaded", name]);
    assert!(create(BackendChoice::Nixl, NixlConfig::default()).is_ok());
    transport.close(PATIENCE).unwrap();
}

fn no_library() {
    // SAFETY: no other thread of this scenario reads the environment.
    unsafe { std::env::remove_var("DT_NIXL_LIB_DIR") };
    unavailable(
        NixlConfig::default(),
        &["libnixl_capi.so", "DT_NIXL_LIB_DIR"],
    );
    unavailable(
        NixlConfig::default(),
        &["libnixl_capi.so", "DT_NIXL_LIB_DIR"],
    );
}

fn no_failure_detection() {
    // SAFETY: no other thread of this scenario reads the environment.
    unsafe { std::env::set_var("UCX_TLS", "posix,cma") };
    unavailable(NixlConfig::default(), &["UCX_TLS", "add tcp"]);
}
