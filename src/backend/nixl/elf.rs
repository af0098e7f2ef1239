//! What the files of libraries say of themselves, as far as it must be known before the loader gets them.
//!
//! The loader maps a file without a look at its length, and ends the process where it was cut short, as an
//! interrupted copy or a full disk leaves it. And it waits for ever for who writes into a FIFO. All else that
//! may be wrong it says itself.

use std::collections::HashSet;
use std::fs::{File, metadata};
use std::io::Read;
use std::path::{Path, PathBuf};

use object::elf::{
    DT_NEEDED, DT_RPATH, DT_RUNPATH, DT_STRTAB, DynamicTag, EM_AARCH64, EM_X86_64, FileHeader64,
    Machine, PT_LOAD,
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
    needed: Vec<String>,
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
        let texts = |tag| {
            with(tag)
                .filter_map(|entry| std::str::from_utf8(entry.string(endian, strings).ok()?).ok())
        };
        let origin = file.parent()?.to_str()?;
        let folders = |tag| {
            let named = texts(tag).flat_map(|all| all.split(':'));
            let real = named.map(|one| one.replace("${ORIGIN}", origin).replace("$ORIGIN", origin));
            real.map(PathBuf::from).collect::<Vec<_>>()
        };
        head.needed = texts(DT_NEEDED).map(str::to_owned).collect();
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

/// Looks at `files` and at all that they need, as far as it is found where they say themselves, or in
/// `$LD_LIBRARY_PATH`, as a bare name is; what lies in the system's folders is the system's. Returns all,
/// or what is wrong.
pub fn check(files: impl IntoIterator<Item = PathBuf>) -> Result<Vec<PathBuf>, String> {
    // Empty, it names no folder; within, an empty name is the folder that the process is in.
    let environment = std::env::var_os("LD_LIBRARY_PATH").filter(|folders| !folders.is_empty());
    let environment = environment.iter().flat_map(std::env::split_paths);
    let environment: Vec<PathBuf> = environment.collect();
    // Each with the folders of those by which it was found.
    let mut found: Vec<(PathBuf, Vec<PathBuf>)> = Vec::new();
    found.extend(files.into_iter().filter_map(|file| {
        let is_bare = file.components().count() == 1;
        let mut paths = environment.iter().map(|dir| dir.join(&file));
        let path = match is_bare {
            true => paths.find(|path| path.exists())?,
            false => file,
        };
        Some((path, Vec::new()))
    }));
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
            let folders = rpath.iter().chain(&environment).chain(&head.runpath);
            let mut paths = folders.map(|dir| dir.join(&name));
            if !names.contains(&name)
                && let Some(path) = paths.find(|path| path.exists())
            {
                found.push((path, rpath.clone()));
            }
            names.insert(name);
        }
    }
    Ok(found.into_iter().map(|(file, _)| file).collect())
}

/// The names by which a library asks for others: it is all that the loader compares.
pub fn needed(file: &Path) -> Vec<String> {
    Head::read(file).unwrap_or_default().needed
}

/// Says if a library was made for another processor: of such a one, the loader says that it is not there.
pub fn is_foreign(file: &Path) -> bool {
    const OURS: Option<Machine> = match () {
        _ if cfg!(target_arch = "x86_64") => Some(EM_X86_64),
        _ if cfg!(target_arch = "aarch64") => Some(EM_AARCH64),
        _ => None,
    };
    // `Elf64_Ehdr` begins with 16 bytes that say how to read the rest, the type, and the processor.
    let mut header = [0; 20];
    let read = File::open(file).and_then(|mut file| file.read_exact(&mut header));
    let machine = Machine(u16::from_le_bytes([header[18], header[19]]));
    read.is_ok() && header.starts_with(b"\x7fELF") && OURS.is_some_and(|ours| ours != machine)
}
