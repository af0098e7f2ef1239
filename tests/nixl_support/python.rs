//! A Python for NIXL's own bindings.

use std::path::PathBuf;
use std::process::Command;

use super::*;

/// Where scripts/nixl.sh puts what the bindings want.
const PACKAGES: &str = concat!(env!("CARGO_MANIFEST_DIR"), "/third_party/python");

/// A test that cannot run says so; where everything must be there, that is a failure.
fn skip<T>(why: String) -> Option<T> {
    assert!(std::env::var_os("CI").is_none(), "{why}");
    eprintln!("SKIPPED: {why}");
    None
}

/// A Python that can load the wheel's bindings, and their folder. They are for one version of it.
pub fn python() -> Option<(Command, PathBuf)> {
    let bindings = lib_dir()?.parent()?.join("nixl_cu12");
    let file = std::fs::read_dir(&bindings)
        .into_iter()
        .flatten()
        .flatten()
        .map(|entry| entry.file_name().to_string_lossy().into_owned())
        .find(|name| name.starts_with("_bindings.cpython-3"));
    let version = file
        .as_deref()
        .and_then(|name| name.split('-').nth(1)?.strip_prefix('3'));
    let Some(version) = version else {
        return skip(format!("no Python bindings in {}", bindings.display()));
    };
    let wanted = format!("3.{version}");
    let test = format!("import sys, numpy; assert '%d.%d' % sys.version_info[:2] == '{wanted}'");
    let mut reasons = String::new();
    for python in [&*format!("python{wanted}"), "python3", "/usr/bin/python3"] {
        // The numpy that was fetched is for the wheel's Python; other bindings come with their own.
        for packages in [Some(PACKAGES), None] {
            let command = || {
                let mut command = Command::new(python);
                if let Some(packages) = packages {
                    command.env("PYTHONPATH", packages);
                }
                command
            };
            let reason = match command().args(["-c", &test]).output() {
                Ok(output) if output.status.success() => return Some((command(), bindings)),
                Ok(output) => String::from_utf8_lossy(&output.stderr).into_owned(),
                Err(error) => error.to_string(),
            };
            let last = reason.trim().lines().last().unwrap_or_default();
            reasons += &format!("; {python} with {}: {last}", packages.unwrap_or("no more"));
        }
    }
    skip(format!(
        "no Python {wanted} with numpy for the bindings in {}, which are for no other: install one{reasons}",
        bindings.display()
    ))
}
