//! What the files of libraries say of themselves, as far as it must be known before the loader gets them.
//!
//! The loader maps a file without a look at its length, and ends the process where it was cut short, as an
//! interrupted copy or a full disk leaves it. And it waits for ever for who writes into a FIFO. All else that
//! may be wrong it says itself.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{File, metadata};
use std::io::Read;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};

use object::elf::{
    DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRTAB, DynamicTag, ELFCLASS64, EM_AARCH64, EM_X86_64,
    FileHeader64, Machine, PT_LOAD,
};
use object::read::elf::{Dyn, FileHeader, ProgramHeader};
use object::read::{ReadCache, StringTable};
use object::{Endianness, ReadRef};

/// What the loader looks at first.
#[derive(Default)]
struct Head {
    len: u64,
    /// So long the file has to be.
    end: u64,
    /// The libraries that it asks for.
    needed: Vec<PathBuf>,
    /// Where they are looked for: before, and after the folders that the environment names.
    rpath: Vec<PathBuf>,
    runpath: Vec<PathBuf>,
}

impl Head {
    /// `None`: it cannot be read, or is no library.
    fn read(file: &Path) -> Option<Head> {
        let data = &ReadCache::new(File::open(file).ok()?);
        let header = FileHeader64::<Endianness>::parse(data).ok()?;
        let endian = header.endian().ok()?;
        let segments = header.program_headers(endian, data).ok()?;
        let loaded = || segments.iter().filter(|one| one.p_type(endian) == PT_LOAD);
        let ends = loaded().map(|one| one.p_offset(endian).saturating_add(one.p_filesz(endian)));
        let mut head = Head {
            len: data.len().ok()?,
            end: ends.max().unwrap_or(0),
            ..Head::default()
        };
        if head.is_cut() {
            return Some(head);
        }
        let dynamic = segments
            .iter()
            .find_map(|one| one.dynamic(endian, data).ok()?)?;
        let with = |tag: DynamicTag| dynamic.iter().filter(move |entry| entry.tag(endian) == tag);
        let at = with(DT_STRTAB).next()?.d_val(endian);
        let strings = loaded().find_map(|one| {
            let inside = at.checked_sub(one.p_vaddr(endian))?;
            let (start, len) = one.file_range(endian);
            (inside < len).then(|| StringTable::new(data, start + inside, start + len))
        })?;
        let texts = |tag| with(tag).filter_map(|entry| entry.string(endian, strings).ok());
        let origin = match file.parent()? {
            // The folder that the process is in; what is put behind the name would be at the root.
            nothing if nothing.as_os_str().is_empty() => Path::new("."),
            parent => parent,
        };
        let path = |text| named(text, origin);
        let folders = |tag| {
            let each = texts(tag).flat_map(|all| all.split(|byte| *byte == b':'));
            each.map(path).collect::<Vec<_>>()
        };
        head.needed = texts(DT_NEEDED).map(path).collect();
        head.runpath = folders(DT_RUNPATH);
        if head.runpath.is_empty() {
            head.rpath = folders(DT_RPATH);
        }
        Some(head)
    }

    fn is_cut(&self) -> bool {
        self.len < self.end
    }
}

/// The path that a library says, which lies in `origin`.
fn named(text: &[u8], origin: &Path) -> PathBuf {
    let own: [&[u8]; 2] = [b"$ORIGIN", b"${ORIGIN}"];
    let Some(rest) = own.iter().find_map(|own| text.strip_prefix(*own)) else {
        return OsStr::from_bytes(text).into();
    };
    let mut path = origin.as_os_str().to_owned();
    path.push(OsStr::from_bytes(rest));
    path.into()
}

/// Where the loader finds `name`: a bare one in the first folder that has it, any other where it says. What was
/// made for another processor it passes over.
fn find<'a>(name: PathBuf, folders: impl IntoIterator<Item = &'a PathBuf>) -> Option<PathBuf> {
    if name.components().count() > 1 {
        return Some(name);
    }
    let mut paths = folders.into_iter().map(|dir| dir.join(&name));
    paths.find(|path| path.exists() && !is_foreign(path))
}

/// Looks at `files` and at all that they need, as far as it is found where they say themselves, or in
/// `$LD_LIBRARY_PATH`, as a bare name is; what lies in the system's folders is the system's. Returns all,
/// or what is wrong.
pub fn check(files: impl IntoIterator<Item = PathBuf>) -> Result<Vec<PathBuf>, String> {
    // Empty, it names no folder; within, an empty name is the folder that the process is in.
    let environment = std::env::var_os("LD_LIBRARY_PATH").filter(|folders| !folders.is_empty());
    let environment = environment.iter().flat_map(|folders| {
        let folders = folders.as_bytes().split(|byte| b":;".contains(byte));
        folders.map(|dir| PathBuf::from(OsStr::from_bytes(dir)))
    });
    let environment: Vec<PathBuf> = environment.collect();
    // Each with the folders of those by which it was found.
    let mut found: Vec<(PathBuf, Vec<PathBuf>)> = Vec::new();
    found.extend(
        files
            .into_iter()
            .filter_map(|file| Some((find(file, &environment)?, Vec::new()))),
    );
    let mut names = HashSet::new();
    let mut next = 0;
    while let Some((file, inherited)) = found.get(next) {
        next += 1;
        // Without the loader's detours.
        let name = || file.canonicalize().unwrap_or(file.clone());
        if metadata(file).is_ok_and(|found| !found.is_file() && !found.is_dir()) {
            return Err(format!("{} is no regular file", name().display()));
        }
        let Some(head) = Head::read(file) else {
            continue;
        };
        if head.is_cut() {
            return Err(format!(
                "{} is cut short: it has {} of at least {} bytes",
                name().display(),
                head.len,
                head.end
            ));
        }
        let mut rpath = head.rpath;
        if head.runpath.is_empty() {
            rpath.extend_from_slice(inherited);
        }
        for name in head.needed {
            if !names.insert(name.clone()) {
                continue;
            }
            let folders = rpath.iter().chain(&environment).chain(&head.runpath);
            found.extend(find(name, folders).map(|path| (path, rpath.clone())));
        }
    }
    Ok(found.into_iter().map(|(file, _)| file).collect())
}

/// The names by which a library asks for others: it is all that the loader compares.
pub fn needed(file: &Path) -> Vec<PathBuf> {
    Head::read(file).unwrap_or_default().needed
}

/// Says if a library was made for another processor: of such a one, the loader says that it is not there.
pub fn is_foreign(file: &Path) -> bool {
    const OURS: Option<Machine> = match () {
        _ if cfg!(target_arch = "x86_64") => Some(EM_X86_64),
        _ if cfg!(target_arch = "aarch64") => Some(EM_AARCH64),
        _ => None,
    };
    if !file.is_file() {
        return false;
    }
    // `Elf64_Ehdr` begins with 16 bytes that say how to read the rest, the type, and the processor.
    let mut header = [0; 20];
    let read = File::open(file).and_then(|mut file| file.read_exact(&mut header));
    let machine = Machine(u16::from_le_bytes([header[18], header[19]]));
    let is_ours = |ours| header[4] == ELFCLASS64.0 && ours == machine;
    read.is_ok() && header.starts_with(b"\x7fELF") && OURS.is_some_and(|ours| !is_ours(ours))
}
