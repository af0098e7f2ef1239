//! NIXL's own configuration file. NIXL makes no agent when it cannot read that, and does not say why; and it waits
//! for who writes into a FIFO.

use std::ffi::OsStr;
use std::io::ErrorKind;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};

use crate::error::{Result, Status, fail};

/// Refuses a file for which NIXL would wait, before it does.
pub fn check() -> Result<()> {
    let is_fifo = |file: &Path| {
        file.metadata()
            .is_ok_and(|found| found.file_type().is_fifo())
    };
    if let Some(file) = chosen()
        && is_fifo(&file)
    {
        fail!(
            Unavailable,
            "NIXL: its configuration file {} is a FIFO, where it would wait for somebody who writes: name another one \
             in $NIXL_CONFIG_FILE, which may be empty",
            file.display()
        );
    }
    Ok(())
}

/// What may be wrong with the file that NIXL has looked for, when it has made no agent; with the status that
/// this is.
pub fn suspicion() -> Option<(Status, String)> {
    suspicion_of(&chosen()?)
}

fn chosen() -> Option<PathBuf> {
    let var = |name| std::env::var_os(name).filter(|value| !value.is_empty());
    file(var("NIXL_CONFIG_FILE").as_deref(), var("HOME").as_deref())
}

/// The file that NIXL takes: the first that is there, or that it cannot find out about.
fn file(named: Option<&OsStr>, home: Option<&OsStr>) -> Option<PathBuf> {
    if let Some(named) = named {
        return Some(PathBuf::from(named));
    }
    let own = home.map(|home| Path::new(home).join(".nixl.cfg"));
    let all = own.into_iter().chain([PathBuf::from("/etc/nixl.cfg")]);
    let absent = |file: &Path| {
        file.metadata()
            .is_err_and(|error| error.kind() == ErrorKind::NotFound)
    };
    all.into_iter().find(|file| !absent(file))
}

fn suspicion_of(file: &Path) -> Option<(Status, String)> {
    let shown = file.display();
    match std::fs::read(file) {
        Err(error) => Some((
            Status::Unavailable,
            format!(
                "its configuration file {shown} cannot be read ({error}): let this process read it, or name another one \
                 in $NIXL_CONFIG_FILE, which may be empty"
            ),
        )),
        Ok(text) if text.is_empty() => None,
        Ok(_) => Some((
            Status::Backend,
            format!("it reads the configuration file {shown}: is that valid TOML?"),
        )),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_file_is_the_one_that_nixl_takes() {
        let folder = std::env::temp_dir().join(format!("dt-config-{}", std::process::id()));
        std::fs::create_dir_all(&folder).unwrap();
        let own = folder.join(".nixl.cfg");
        let home = Some(folder.as_os_str());
        assert_ne!(file(None, home), Some(own.clone()));
        std::fs::write(&own, "").unwrap();
        assert_eq!(file(None, home), Some(own.clone()));
        assert_eq!(suspicion_of(&own), None);
        std::fs::write(&own, "a =").unwrap();
        assert_eq!(suspicion_of(&own).unwrap().0, Status::Backend);
        // Something that nobody can look into, not even root.
        let beyond = own.join("home");
        let (status, text) = suspicion_of(&file(None, Some(beyond.as_os_str())).unwrap()).unwrap();
        assert_eq!(status, Status::Unavailable);
        assert!(
            text.contains(".nixl.cfg/home/.nixl.cfg cannot be read"),
            "{text}"
        );
        // What is named is taken, even if it is not there.
        let named = folder.join("none");
        assert_eq!(file(Some(named.as_os_str()), home), Some(named.clone()));
        assert_eq!(suspicion_of(&named).unwrap().0, Status::Unavailable);
        std::fs::remove_dir_all(&folder).unwrap();
    }
}
