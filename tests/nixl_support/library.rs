//! What a transport says about libraries that are not what they should be, and such libraries.

use std::ffi::{OsStr, OsString};
use std::os::unix::fs::symlink;
use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::Duration;

use datatransport::backend::Kind;
use datatransport::error::{Error, Status};
use datatransport::log::Level;
use datatransport::region::{LocalRegion, Region};
use datatransport::transport::{BackendChoice, Config, NixlConfig, Transport};

use super::*;

pub fn create(backend: BackendChoice, nixl: NixlConfig) -> Result<Transport, Error> {
    let memory = Box::leak(vec![0u8; 16 * 4096].into_boxed_slice());
    Transport::create(Config {
        // SAFETY: the memory outlives the transport.
        region: unsafe { LocalRegion::new(Region::new(memory.as_ptr() as u64, 16, 4096).unwrap()) },
        region_fd: None,
        backend,
        nixl,
        agent_name: None,
        config_json: None,
        poll_budget: Duration::from_micros(500),
    })
}

pub fn in_dir(dir: &Path) -> NixlConfig {
    NixlConfig {
        lib_dir: Some(dir.to_str().unwrap().into()),
        ..NixlConfig::default()
    }
}

pub fn unavailable(config: NixlConfig, words: &[&str]) {
    let error = create(BackendChoice::Nixl, config)
        .err()
        .expect("it was taken");
    assert_eq!(error.status, Status::Unavailable, "{error}");
    for word in words {
        assert!(error.message.contains(word), "no {word:?} in: {error}");
    }
}

/// A folder that is gone when the test is.
pub struct Folder(pub PathBuf);

impl Folder {
    pub fn new(name: &str) -> Folder {
        let path = std::env::temp_dir().join(format!("dt-nixl-{}-{name}", std::process::id()));
        std::fs::create_dir_all(&path).unwrap();
        Folder(path)
    }

    /// A shared library of this C text.
    pub fn compile(&self, file: &str, text: &str, soname: &str) {
        self.compile_with(file, text, soname, &[]);
    }

    /// The same with more for the compiler: libraries, for instance, which it then asks for.
    pub fn compile_with(&self, file: &str, text: &str, soname: &str, more: &[&OsStr]) {
        let source = self.0.join("source.c");
        std::fs::write(&source, text).unwrap();
        let status = Command::new("cc")
            .args(["-shared", "-fPIC", "-Wl,--no-as-needed", "-o"])
            .arg(self.0.join(file))
            .arg(&source)
            .arg(format!("-Wl,-soname,{soname}"))
            .args(more)
            .status()
            .expect("cc is there, for nixl-sys needs it");
        assert!(status.success());
    }
}

/// NIXL as it is installed, in links, each of which can be replaced.
pub struct Installation(Folder);

impl Installation {
    pub fn new(name: &str) -> Installation {
        let (folder, real) = (Folder::new(name), lib_dir().unwrap());
        let ucx = real.with_file_name("nixl_cu12.libs");
        for dir in [&real, &real.join("plugins"), &ucx, &ucx.join("ucx")] {
            let here = folder
                .0
                .join(dir.strip_prefix(real.parent().unwrap()).unwrap());
            std::fs::create_dir(&here).unwrap();
            for entry in dir.read_dir().unwrap().map(Result::unwrap) {
                if entry.file_type().unwrap().is_file() {
                    symlink(entry.path(), here.join(entry.file_name())).unwrap();
                }
            }
        }
        Installation(folder)
    }

    /// What a transport is told.
    pub fn lib_dir(&self) -> PathBuf {
        self.0.0.join(lib_dir().unwrap().file_name().unwrap())
    }

    /// The file in `dir`, seen from [`Installation::lib_dir`], whose name begins so.
    pub fn file(&self, dir: &str, start: &str) -> PathBuf {
        let dir = self.lib_dir().join(dir).canonicalize().unwrap();
        let mut names = dir
            .read_dir()
            .unwrap()
            .map(|entry| entry.unwrap().file_name());
        let found = names.find(|name| name.to_str().unwrap().starts_with(start));
        dir.join(found.unwrap_or_else(|| panic!("no {start}")))
    }

    /// Puts what it gets in the place of `file`, as long as `then` runs.
    pub fn with(&self, file: &Path, put: impl FnOnce(&Path), then: impl FnOnce()) {
        let real = file.read_link().unwrap();
        std::fs::remove_file(file).unwrap();
        put(file);
        then();
        std::fs::remove_file(file).unwrap();
        symlink(real, file).unwrap();
    }
}

impl Drop for Folder {
    fn drop(&mut self) {
        let _ = std::fs::remove_dir_all(&self.0);
    }
}

/// A sentence for who asks for NIXL, and LOCAL for who does not.
pub fn unusable(nixl: NixlConfig, words: &[&str]) {
    unavailable(nixl.clone(), words);
    auto_takes_local(nixl, words);
}

/// Without NIXL, AUTO takes LOCAL and says why, in words that include `words`; and LOCAL works. Where a
/// place was named for NIXL, it is a warning.
pub fn auto_takes_local(nixl: NixlConfig, words: &[&str]) {
    let variable = std::env::var_os("DT_NIXL_LIB_DIR");
    let names = [nixl.lib_dir.clone().map(OsString::from), variable];
    let is_named = names.into_iter().flatten().any(|name| !name.is_empty());
    let log = Log::new();
    let transport = create(BackendChoice::Auto, nixl).unwrap_or_else(|error| panic!("{error}"));
    let lines = log.lines();
    drop(log);
    assert_eq!(transport.backend_kind(), Kind::Local);
    let told = lines
        .iter()
        .find(|(_, line)| line.contains("backend LOCAL"));
    let (level, line) = told.unwrap_or_else(|| panic!("no word of LOCAL: {lines:?}"));
    let wanted = [Level::Info, Level::Warn][usize::from(is_named)];
    assert_eq!(*level, wanted, "{line}");
    for word in [&["NIXL does not start"], words].concat() {
        assert!(line.contains(word), "no {word:?} in: {line}");
    }
    local_works();
}

fn local_works() {
    let (here, there) = (Memory::new(8 * 4096), Memory::new(8 * 4096));
    here.fill(1, 4096);
    let a = transport_of(BackendChoice::Local, None, &here, 4096, Default::default());
    let b = transport_of(BackendChoice::Local, None, &there, 4096, Default::default());
    let metadata = b.agent_metadata().unwrap();
    a.add_peer("b", &metadata, there.base(), 8, 4096).unwrap();
    let id = write(&a, "b", &[1, 2], &[3, 4]);
    assert_eq!(finish(&a, &[id])[&id], Ok(()));
    assert!(holds(there.block(3, 4096), 1, 1) && holds(there.block(4, 4096), 1, 2));
}
