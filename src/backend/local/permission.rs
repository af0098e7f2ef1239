//! Which of the kernel's rules keeps this process from looking into another one. The kernel does not
//! say: all of them end as the same error number. See ptrace(2), "Ptrace access mode checking".

use std::fs::{metadata, read_to_string};
use std::os::unix::fs::MetadataExt;

use rustix::io::Errno;

use super::threads;

const CAP_SYS_PTRACE: u64 = 1 << 19;

/// Of the thread that asks: each has rights of its own.
const OWN: &str = "/proc/thread-self/status";

/// What a process asks for, and so which of its rights count.
#[derive(Clone, Copy)]
enum Asks {
    /// To open something in `/proc`: the ids for files, and what is effective.
    Look,
    /// `process_vm`: the real ids, and what is permitted.
    Copy,
}

/// What `/proc/PID/status` says of the rights of a process.
#[derive(Clone, Copy, PartialEq, Debug)]
struct Rights {
    /// Real, effective, saved, and that for files.
    uids: [u32; 4],
    gids: [u32; 4],
    permitted: u64,
    effective: u64,
}

impl Rights {
    fn read(path: &str) -> Option<Rights> {
        Rights::parse(&read_to_string(path).ok()?)
    }

    fn parse(status: &str) -> Option<Rights> {
        let field = |name: &str| {
            let mut lines = status.lines();
            lines.find_map(|line| line.strip_prefix(name)?.strip_prefix(':'))
        };
        let ids = |name| {
            let mut ids = field(name)?.split_whitespace().map(str::parse);
            let mut next = || ids.next()?.ok();
            Some([next()?, next()?, next()?, next()?])
        };
        let set = |name| u64::from_str_radix(field(name)?.trim(), 16).ok();
        Some(Rights {
            uids: ids("Uid")?,
            gids: ids("Gid")?,
            permitted: set("CapPrm")?,
            effective: set("CapEff")?,
        })
    }

    /// What keeps a process with these rights from what it asks of `peer`.
    fn lack(&self, asks: Asks, peer: &Rights, peer_is_dumpable: bool) -> Option<String> {
        if self.effective & CAP_SYS_PTRACE != 0 {
            return None;
        }
        let (own_id, held) = match asks {
            Asks::Look => (3, self.effective),
            Asks::Copy => (0, self.permitted),
        };
        let other = |there: [u32; 4], here: [u32; 4]| {
            let id = there[..3].iter().find(|id| **id != here[own_id])?;
            Some((*id, here[own_id]))
        };
        if let Some((there, here)) = other(peer.uids, self.uids) {
            return Some(format!("it has uid {there}, this process {here}"));
        }
        if let Some((there, here)) = other(peer.gids, self.gids) {
            return Some(format!("it has gid {there}, this process {here}"));
        }
        let more = peer.permitted & !held;
        if more != 0 {
            return Some(format!(
                "it has capabilities that this process lacks: {more:#x}"
            ));
        }
        (!peer_is_dumpable).then(|| "it is not dumpable".to_owned())
    }

    /// What keeps a process with these rights from copying where Yama has this `ptrace_scope`.
    fn lack_in_scope(&self, scope: &str) -> Option<String> {
        match scope {
            "0" => None,
            "1" | "2" if self.effective & CAP_SYS_PTRACE != 0 => None,
            _ => Some(format!("ptrace_scope is {scope}")),
        }
    }
}

/// Why `pid` could not be looked into: the rule, or else `errno`.
pub(super) fn reason(pid: u32, errno: Errno) -> String {
    lack(Asks::Look, pid).unwrap_or_else(|| errno.to_string())
}

/// The same for `process_vm`, which one more rule forbids.
pub(super) fn reason_to_copy(pid: u32, errno: Errno) -> String {
    let scope = || {
        let scope = read_to_string("/proc/sys/kernel/yama/ptrace_scope").ok()?;
        let own = Rights::read(OWN)?;
        own.lack_in_scope(scope.trim())
    };
    let errno_and = |scope| format!("{errno}; {scope}");
    let lack = lack(Asks::Copy, pid).or_else(|| (errno == Errno::PERM).then(scope)?.map(errno_and));
    lack.unwrap_or_else(|| errno.to_string())
}

fn lack(asks: Asks, pid: u32) -> Option<String> {
    let own = Rights::read(OWN)?;
    let peer = Rights::read(&format!("/proc/{pid}/status"))?;
    if is_elsewhere(pid, &own) {
        return Some("it is in another user namespace".to_owned());
    }
    own.lack(asks, &peer, is_dumpable(pid, &peer))
}

/// In another user namespace rights are worth nothing, but for those of the first one, which hold in all.
/// Whoever is in the same namespace has the same map. So may others: then nothing is said.
fn is_elsewhere(pid: u32, own: &Rights) -> bool {
    let map = |path: &str| {
        let map = read_to_string(path).ok()?;
        Some(
            map.split_whitespace()
                .map(str::to_owned)
                .collect::<Vec<_>>(),
        )
    };
    let (Some(here), Some(there)) = (
        map("/proc/thread-self/uid_map"),
        map(&format!("/proc/{pid}/uid_map")),
    ) else {
        return false;
    };
    let is_first = here == ["0", "0", "4294967295"];
    here != there && !(is_first && own.effective & CAP_SYS_PTRACE != 0)
}

/// What may not be looked into belongs to root in `/proc`, whoever the process is. A doubt is a yes.
fn is_dumpable(pid: u32, peer: &Rights) -> bool {
    let belongs_to_it = threads::find(pid, |folder| match metadata(format!("{folder}/stat")) {
        Ok(stat) if stat.uid() != peer.uids[1] => Err(Errno::ACCESS),
        _ => Ok(()),
    });
    belongs_to_it.is_ok()
}

#[cfg(test)]
mod tests {
    use super::*;

    const USER: Rights = Rights {
        uids: [1000; 4],
        gids: [100; 4],
        permitted: 0,
        effective: 0,
    };

    #[test]
    fn the_rule_that_is_not_met_is_named() {
        assert_eq!(USER.lack(Asks::Look, &USER, true), None);
        let lack = |peer: Rights| USER.lack(Asks::Look, &peer, true);
        let setuid = [1000, 0, 0, 0];
        assert_eq!(
            lack(Rights {
                uids: setuid,
                ..USER
            })
            .unwrap(),
            "it has uid 0, this process 1000"
        );
        assert_eq!(
            lack(Rights {
                gids: [100, 100, 5, 100],
                ..USER
            })
            .unwrap(),
            "it has gid 5, this process 100"
        );
        // Those for files are not asked for of the one that is looked into.
        assert_eq!(
            lack(Rights {
                uids: [1000, 1000, 1000, 7],
                ..USER
            }),
            None
        );
        let strong = Rights {
            permitted: 0x2400,
            ..USER
        };
        assert_eq!(
            lack(strong).unwrap(),
            "it has capabilities that this process lacks: 0x2400"
        );
        let one = Rights {
            effective: 0x400,
            ..USER
        };
        assert_eq!(
            one.lack(Asks::Look, &strong, true).unwrap(),
            "it has capabilities that this process lacks: 0x2000"
        );
        assert_eq!(
            USER.lack(Asks::Look, &USER, false).unwrap(),
            "it is not dumpable"
        );
        let privileged = Rights {
            effective: CAP_SYS_PTRACE,
            ..USER
        };
        assert_eq!(
            privileged.lack(
                Asks::Look,
                &Rights {
                    uids: [0; 4],
                    ..strong
                },
                false
            ),
            None
        );
    }

    #[test]
    fn what_is_asked_for_says_which_rights_count() {
        let here = Rights {
            uids: [1000, 7, 7, 8],
            gids: [100, 5, 5, 6],
            permitted: 0x2400,
            effective: 0x400,
        };
        let lack = |asks, peer| here.lack(asks, &peer, true);
        let real = Rights {
            permitted: 0x2000,
            ..USER
        };
        assert_eq!(lack(Asks::Copy, real), None);
        assert_eq!(
            lack(Asks::Look, real).unwrap(),
            "it has uid 1000, this process 8"
        );
        let for_files = Rights {
            uids: [8; 4],
            gids: [6; 4],
            ..real
        };
        assert_eq!(
            lack(Asks::Look, for_files).unwrap(),
            "it has capabilities that this process lacks: 0x2000"
        );
        assert_eq!(
            lack(Asks::Copy, for_files).unwrap(),
            "it has uid 8, this process 1000"
        );
    }

    #[test]
    fn yama_is_named_where_it_is_at_work() {
        let privileged = Rights {
            effective: CAP_SYS_PTRACE,
            ..USER
        };
        assert_eq!(USER.lack_in_scope("0"), None);
        assert_eq!(USER.lack_in_scope("1").unwrap(), "ptrace_scope is 1");
        assert_eq!(privileged.lack_in_scope("2"), None);
        assert_eq!(privileged.lack_in_scope("3").unwrap(), "ptrace_scope is 3");
    }

    #[test]
    fn the_kernel_says_what_is_read_here() {
        let own = Rights::read(OWN).unwrap();
        let user = rustix::process::getuid().as_raw();
        let group = rustix::process::getgid().as_raw();
        assert_eq!((own.uids[0], own.gids[0]), (user, group));
        assert_eq!(own.effective & !own.permitted, 0);
        assert_eq!(own.lack(Asks::Look, &own, true), None);
        assert!(is_dumpable(std::process::id(), &own));
        assert_eq!(Rights::parse("Uid:\t1\t2\t3\nGid:\t1 1 1 1\n"), None);
        // Nothing is known of a process that is not there.
        let errno = Errno::PERM;
        assert_eq!(reason(4_194_303, errno), errno.to_string());
    }
}
