//! Gives the shared library its SONAME, and generates the C header from `src/ffi`.
//!
//! The header goes to `$OUT_DIR/dt.h`, where a test compares it with the committed `include/dt.h`.
//! `DT_UPDATE_HEADER=1 cargo build` writes the committed one anew.

use std::env;
use std::fs;
use std::path::Path;

/// In the order in which their functions appear in the header.
const SOURCES: [&str; 13] = [
    "status",
    "last_error",
    "handle",
    "transport",
    "fingerprint",
    "peers",
    "handshake",
    "push",
    "pull",
    "messages",
    "stats",
    "log",
    "region",
];

fn main() {
    let version = Version::of_this_crate();
    println!(
        "cargo:rustc-cdylib-link-arg=-Wl,-soname,libdatatransport.so.{}",
        version.major
    );

    println!("cargo:rerun-if-env-changed=DT_UPDATE_HEADER");
    println!("cargo:rerun-if-changed=build.rs");
    println!("cargo:rerun-if-changed=cbindgen.toml");
    println!("cargo:rerun-if-changed=include/dt.h");

    let mut config = cbindgen::Config::from_file("cbindgen.toml").expect("cbindgen.toml is valid");
    config.after_includes = Some(version.macros());
    let mut builder = cbindgen::Builder::new().with_config(config);
    for name in SOURCES {
        let source = format!("src/ffi/{name}.rs");
        println!("cargo:rerun-if-changed={source}");
        builder = builder.with_src(source);
    }
    let mut header = Vec::new();
    builder
        .generate()
        .expect("the files in src/ffi can be parsed")
        .write(&mut header);

    let out = env::var_os("OUT_DIR").expect("cargo sets OUT_DIR");
    fs::write(Path::new(&out).join("dt.h"), &header).expect("OUT_DIR is writable");
    if env::var_os("DT_UPDATE_HEADER").is_some_and(|value| value == "1") {
        fs::create_dir_all("include").expect("the folder include can be made");
        fs::write("include/dt.h", &header).expect("include/dt.h is writable");
    }
}

struct Version {
    major: u32,
    minor: u32,
    patch: u32,
}

impl Version {
    fn of_this_crate() -> Version {
        let part = |name: &str| {
            let value = env::var(format!("CARGO_PKG_VERSION_{name}")).expect("cargo sets it");
            value.parse().expect("a part of a version is a number")
        };
        Version {
            major: part("MAJOR"),
            minor: part("MINOR"),
            patch: part("PATCH"),
        }
    }

    /// What cbindgen cannot say: macros that are made from the version, and an initialiser.
    fn macros(&self) -> String {
        let Version {
            major,
            minor,
            patch,
        } = self;
        let abi = (major << 16) | minor;
        format!(
            r#"
/** Version of this header: major. See dt_version for the library that is running. */
#define DT_VERSION_MAJOR {major}
/** Version of this header: minor. */
#define DT_VERSION_MINOR {minor}
/** Version of this header: patch. */
#define DT_VERSION_PATCH {patch}

/** Version of the interface in this header: major << 16 | minor. */
#define DT_ABI_VERSION {abi:#010x}u

/**
 * Initialiser of a dt_options that asks for the defaults, in C and in C++:
 *
 *     dt_options options = DT_OPTIONS_INIT;
 */
#define DT_OPTIONS_INIT \
    {{ \
        sizeof(dt_options), /* struct_size */ \
        DT_ABI_VERSION,     /* abi_version */ \
        DT_BACKEND_AUTO,    /* backend */ \
        NULL,               /* agent_name */ \
        NULL,               /* config_json */ \
        NULL,               /* nixl_lib_dir */ \
        NULL,               /* nixl_plugin */ \
        0,                  /* nixl_num_threads */ \
        false,              /* progress_thread */ \
        0,                  /* region_fd */ \
        0,                  /* region_offset */ \
        false,              /* region_has_fd */ \
        0                   /* poll_budget_us */ \
    }}"#
        )
    }
}
