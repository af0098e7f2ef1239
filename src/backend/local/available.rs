//! How much memory there is to be had: what the system has left, and what the control groups of this
//! process permit. Whoever takes more is killed, has others killed, or is made to wait.
//!
//! Read by hand: the crates for control groups manage them, or look at one and not at those above it.

use std::fs::read_to_string;
use std::path::{Path, PathBuf};

/// Bytes that could be taken now. `None` where nobody knows.
pub(super) fn available() -> Option<u64> {
    let meminfo = read_to_string("/proc/meminfo").ok()?;
    let membership = read_to_string("/proc/self/cgroup").unwrap_or_default();
    least_of_all(&meminfo, Path::new("/sys/fs/cgroup"), &membership)
}

fn least_of_all(meminfo: &str, mount: &Path, membership: &str) -> Option<u64> {
    let system = in_system(meminfo)?;
    Some(in_groups(mount, membership).map_or(system, |groups| groups.min(system)))
}

fn in_system(meminfo: &str) -> Option<u64> {
    let kib: u64 = value(meminfo, "MemAvailable:")?;
    kib.checked_mul(1024)
}

/// The number behind `key`, the first word of a line.
fn value(text: &str, key: &str) -> Option<u64> {
    let mut lines = text.lines().map(str::split_ascii_whitespace);
    let mut words = lines.find_map(|mut words| (words.next() == Some(key)).then_some(words))?;
    words.next()?.parse().ok()
}

/// The files of one version of control groups.
struct Names {
    /// The least of them counts.
    limits: &'static [&'static str],
    usage: &'static str,
    /// In memory.stat: what is used, but given up when asked for.
    cache: &'static str,
}

const V1: Names = Names {
    limits: &["memory.limit_in_bytes"],
    usage: "memory.usage_in_bytes",
    cache: "total_inactive_file",
};
const V2: Names = Names {
    limits: &["memory.max", "memory.high"],
    usage: "memory.current",
    cache: "inactive_file",
};

/// The least that any group has left, of those that `membership` (/proc/self/cgroup) names and those
/// above them. `None`: there is no limit.
fn in_groups(mount: &Path, membership: &str) -> Option<u64> {
    membership
        .lines()
        .filter_map(|line| {
            let mut fields = line.splitn(3, ':').skip(1);
            let (controllers, path) = (fields.next()?, fields.next()?);
            let group = path.trim_start_matches('/');
            match controllers {
                "" => least(mount, group, &V2),
                _ if controllers.split(',').any(|name| name == "memory") => {
                    least(&mount.join("memory"), group, &V1)
                }
                _ => None,
            }
        })
        .min()
}

/// A container may see its own group as the mount itself, under whatever name: what is not there is
/// skipped.
fn least(mount: &Path, group: &str, names: &Names) -> Option<u64> {
    let groups = Path::new(group).ancestors().map(|group| mount.join(group));
    groups.filter_map(|group| left(&group, names)).min()
}

fn left(group: &Path, names: &Names) -> Option<u64> {
    let read = |name: &str| read_to_string(PathBuf::from(group).join(name)).ok();
    let number = |name: &str| read(name)?.trim().parse::<u64>().ok();
    // "max" is no number.
    let limit = names.limits.iter().copied().filter_map(number).min()?;
    let cache = read("memory.stat").and_then(|stat| value(&stat, names.cache));
    let used = number(names.usage)?.saturating_sub(cache.unwrap_or(0));
    Some(limit.saturating_sub(used))
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::fs::{create_dir_all, remove_dir_all, write};

    #[test]
    fn reads_what_the_kernel_writes() {
        let text =
            "MemTotal:       24 kB\nMemFree: 1 kB\nMemAvailable:   22896184 kB\nBuffers: 0 kB\n";
        assert_eq!(in_system(text), Some(22_896_184 << 10));
        assert_eq!(in_system("MemTotal: 24 kB\n"), None);
        assert_eq!(in_system("MemAvailable:\n"), None);
        assert_eq!(in_system("MemAvailable: 99999999999999999 kB\n"), None);
        assert!(available().is_some());
    }

    /// A mount with these files, which the test throws away.
    struct Mount(PathBuf);

    impl Mount {
        fn new(name: &str, files: &[(&str, &str)]) -> Mount {
            let mount = std::env::temp_dir().join(format!("dt-{name}-{}", std::process::id()));
            for (path, content) in files {
                let path = mount.join(path);
                create_dir_all(path.parent().unwrap()).unwrap();
                write(path, content).unwrap();
            }
            Mount(mount)
        }
    }

    impl Drop for Mount {
        fn drop(&mut self) {
            remove_dir_all(&self.0).unwrap();
        }
    }

    #[test]
    fn the_tightest_group_counts() {
        let mount = Mount::new(
            "cgroup-v2",
            &[
                ("a/memory.max", "1000\n"),
                ("a/memory.current", "900\n"),
                ("a/memory.stat", "anon 1\ninactive_file 250\n"),
                ("a/b/memory.max", "500\n"),
                ("a/b/memory.current", "100\n"),
                ("a/b/c/memory.max", "max\n"),
                ("a/b/c/memory.current", "100\n"),
                ("high/memory.max", "max\n"),
                ("high/memory.high", "300\n"),
                ("high/memory.current", "100\n"),
                ("higher/memory.max", "200\n"),
                ("higher/memory.high", "300\n"),
                ("higher/memory.current", "100\n"),
                ("full/memory.max", "10\n"),
                ("full/memory.current", "11\n"),
            ],
        );
        let left = |membership| in_groups(&mount.0, membership);
        assert_eq!(left("0::/a/b/c\n"), Some(350));
        assert_eq!(left("0::/a\n"), Some(350));
        assert_eq!(left("0::/high\n"), Some(200));
        assert_eq!(left("0::/higher\n"), Some(100));
        assert_eq!(left("0::/full\n"), Some(0));
        assert_eq!(left("0::/\n"), None);
        assert_eq!(left("0::/elsewhere\n"), None);
        assert_eq!(left("4:cpu:/a\nnonsense\n\n"), None);
        for (system, least) in [(1, 350), (0, 0)] {
            let meminfo = format!("MemAvailable: {system} kB\n");
            assert_eq!(least_of_all(&meminfo, &mount.0, "0::/a\n"), Some(least));
        }
        assert_eq!(
            least_of_all("MemAvailable: 1 kB\n", &mount.0, "0::/\n"),
            Some(1024)
        );
    }

    #[test]
    fn the_old_groups_count_too() {
        let mount = Mount::new(
            "cgroup-v1",
            &[
                ("memory/memory.limit_in_bytes", "4000\n"),
                ("memory/memory.usage_in_bytes", "1500\n"),
                (
                    "memory/memory.stat",
                    "inactive_file 1\ntotal_inactive_file 500\n",
                ),
            ],
        );
        let membership = "5:cpu,cpuacct:/x\n4:memory:/not/seen/from/here\n0::/\n";
        assert_eq!(in_groups(&mount.0, membership), Some(3000));
    }
}
