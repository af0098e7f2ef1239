//! Other libraries in the process: another UCX, and the system's own of those that UCX brings along.

mod nixl_support;

use std::ffi::CString;
use std::path::{Path, PathBuf};

use datatransport::backend::Direction;
use datatransport::transport::NixlConfig;
use nixl_support::*;

const SCENARIOS: &[(&str, fn())] = &[
    ("a_private_ucx", a_private_ucx),
    ("a_global_ucx", a_global_ucx),
    ("a_preloaded_ucx", refuses_the_second_ucx),
    ("the_same_ucx", the_same_ucx),
    ("verbs_of_the_system", verbs_of_the_system),
];

#[test]
fn process() {
    nixl_support::process(SCENARIOS);
}

scenarios! {
    a_private_ucx_default: a_private_ucx Default;
    a_private_ucx_tcp: a_private_ucx Tcp;
    a_global_ucx_default: a_global_ucx Default;
    the_same_ucx_default: the_same_ucx Default;
    verbs_of_the_system_default: verbs_of_the_system Default;
    verbs_of_the_system_tcp: verbs_of_the_system Tcp;
}

const BLOCK: usize = 64 << 10;

/// Blocks both ways, and a peer that comes and goes. What follows is a clean exit.
fn blocks_move() {
    let memory = Memory::new(128 * BLOCK);
    let transport = transport(Some("a"), &memory, BLOCK);
    let (local, remote) = (permutation(128, 2), permutation(128, 3));
    for round in 0..2 {
        let peer = Peer::start("b", 128, BLOCK);
        peer.add_to(&transport, "b");
        memory.fill(round, BLOCK);
        let id = write(&transport, "b", &local, &remote);
        assert_eq!(finish(&transport, &[id])[&id], Ok(()));
        for (l, r) in local.iter().zip(&remote) {
            assert!(holds(peer.memory.block(*r, BLOCK), round, *l));
        }
        peer.memory.fill(round + 100, BLOCK);
        let id = transport
            .submit(Direction::Read, "b", &local, &remote, 0)
            .unwrap();
        assert_eq!(finish(&transport, &[id])[&id], Ok(()));
        for (l, r) in local.iter().zip(&remote) {
            assert!(holds(memory.block(*l, BLOCK), round + 100, *r));
        }
        transport.remove_peer("b").unwrap();
        peer.finish();
    }
    transport.close(PATIENCE).unwrap();
}

/// Loads a library, for good.
fn open(file: &Path, scope: i32) -> bool {
    let name = CString::new(file.to_str().unwrap()).unwrap();
    // SAFETY: the name is NUL-terminated. The libraries are UCX's and the system's.
    let handle = unsafe { libc::dlopen(name.as_ptr(), libc::RTLD_NOW | scope) };
    !handle.is_null()
}

/// The libraries of NIXL's own UCX, libucp last.
fn own_ucx() -> Option<Vec<PathBuf>> {
    let folder = lib_dir()?.parent()?.join("nixl_cu12.libs");
    let files: Option<Vec<_>> = ["libucm-", "libucs-", "libuct-", "libucp-"]
        .iter()
        .map(|name| {
            let files = std::fs::read_dir(&folder).ok()?.flatten();
            let mut files = files.filter(|file| {
                let file = file.file_name();
                file.to_str().is_some_and(|file| file.starts_with(name))
            });
            Some(files.next()?.path())
        })
        .collect();
    match files {
        None => skip(format!("no UCX of a wheel in {}", folder.display())),
        files => files,
    }
}

/// Copies of them under other names, which is what another UCX is to the loader.
fn another_ucx(folder: &Folder) -> Option<Vec<PathBuf>> {
    let own = own_ucx()?;
    // Of libucp-b39b3ed9.so.0.0.0 that is b39b3ed9, in the file's name and in those that it needs.
    let tags: Vec<[u8; 8]> = own
        .iter()
        .map(|file| {
            let name = file.file_name().unwrap().as_encoded_bytes();
            name[7..15].try_into().expect("a wheel's name of a library")
        })
        .collect();
    let renamed = |bytes: &[u8]| {
        let mut bytes = bytes.to_vec();
        let mut at = 0;
        while at + 8 <= bytes.len() {
            if tags.iter().any(|tag| bytes[at..at + 8] == *tag) {
                bytes[at..at + 8].reverse();
                at += 8;
            } else {
                at += 1;
            }
        }
        bytes
    };
    let copies = own.iter().map(|file| {
        let name = renamed(file.file_name().unwrap().as_encoded_bytes());
        let copy = folder.0.join(String::from_utf8(name).unwrap());
        std::fs::write(&copy, renamed(&std::fs::read(file).unwrap())).unwrap();
        copy
    });
    Some(copies.collect())
}

fn a_private_ucx() {
    let folder = Folder::new("private-ucx");
    let Some(files) = another_ucx(&folder) else {
        return;
    };
    assert!(open(files.last().unwrap(), libc::RTLD_LOCAL));
    blocks_move();
}

fn a_global_ucx() {
    let folder = Folder::new("global-ucx");
    let Some(files) = another_ucx(&folder) else {
        return;
    };
    assert!(open(files.last().unwrap(), libc::RTLD_GLOBAL));
    refuses_the_second_ucx();
}

#[test]
fn a_preloaded_ucx_default() {
    let folder = Folder::new("preloaded-ucx");
    let Some(files) = another_ucx(&folder) else {
        return;
    };
    let list: Vec<&str> = files.iter().map(|file| file.to_str().unwrap()).collect();
    let preload = [("LD_PRELOAD", &*list.join(":"))];
    run_with("a_preloaded_ucx", Tls::Default, &preload);
}

/// Says so before UCX's constructors have run, which mix already.
fn refuses_the_second_ucx() {
    for _ in 0..2 {
        unavailable(
            NixlConfig::default(),
            &["-ucx/libucp-", "needs", "libplugin_UCX.so", "RTLD_LOCAL"],
        );
    }
    auto_takes_local(NixlConfig::default(), &["libplugin_UCX.so", "RTLD_LOCAL"]);
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    assert!(maps.contains("-ucx/libucp-") && !maps.contains("libplugin_UCX"));
}

/// Where NIXL's own UCX is global already, there is one UCX.
fn the_same_ucx() {
    let Some(files) = own_ucx() else {
        return;
    };
    assert!(open(files.last().unwrap(), libc::RTLD_GLOBAL));
    blocks_move();
}

/// UCX brings its own copies of these, and two of a kind crash in exit().
fn verbs_of_the_system() {
    for name in ["libnl-3.so.200", "libnl-route-3.so.200", "libibverbs.so.1"] {
        if !open(Path::new(name), libc::RTLD_GLOBAL) {
            let _ = skip::<()>(format!("this system has no {name}"));
            return;
        }
    }
    blocks_move();
}
