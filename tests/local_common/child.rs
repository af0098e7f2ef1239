//! A process of its own, and what it does when it is told.

use super::*;

/// A process of its own. Dropping it kills it.
pub struct Child {
    process: std::process::Child,
    to: ChildStdin,
    from: BufReader<ChildStdout>,
}

impl Child {
    pub fn new() -> Child {
        Child::as_user(0)
    }

    pub fn as_user(uid: u32) -> Child {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command.args(["--exact", "child_main", "--nocapture", "--test-threads=1"]);
        command
            .env("DT_LOCAL_CHILD", "1")
            .stdin(Stdio::piped())
            .stdout(Stdio::piped());
        if uid != 0 {
            command.uid(uid).gid(uid).current_dir("/");
        }
        let mut process = command.spawn().unwrap();
        let to = process.stdin.take().unwrap();
        let from = BufReader::new(process.stdout.take().unwrap());
        Child { process, to, from }
    }

    pub fn pid(&self) -> Pid {
        Pid::from_child(&self.process)
    }

    pub fn signal(&self, signal: Signal) {
        kill_process(self.pid(), signal).unwrap();
    }

    /// Kills the process, and waits until it is gone.
    pub fn kill(&mut self) {
        self.process.kill().unwrap();
        self.process.wait().unwrap();
    }

    pub fn tell(&mut self, command: &str) {
        writeln!(self.to, "{command}").unwrap();
    }

    /// The next answer: what comes after `ok`, or the error.
    pub fn answer(&mut self) -> std::result::Result<String, String> {
        loop {
            let mut line = String::new();
            assert_ne!(
                self.from.read_line(&mut line).unwrap(),
                0,
                "the child has died"
            );
            // The test harness of the child writes there too, also in front of an answer.
            if let Some((_, answer)) = line.trim_end().split_once('@') {
                return match answer.split_once(' ').unwrap_or((answer, "")) {
                    ("ok", text) => Ok(text.to_owned()),
                    (_, text) => Err(text.to_owned()),
                };
            }
        }
    }

    pub fn ask(&mut self, command: &str) -> std::result::Result<String, String> {
        self.tell(command);
        self.answer()
    }

    /// Has the child make its transport.
    pub fn create(&mut self, backing: Backing, blocks: u64, block_len: u64) -> Described {
        self.create_named("node", backing, blocks, block_len)
    }

    pub fn create_named(
        &mut self,
        name: &str,
        backing: Backing,
        blocks: u64,
        block_len: u64,
    ) -> Described {
        let answer = self
            .ask(&format!("create {backing:?} {blocks} {block_len} {name}"))
            .unwrap();
        let (base, metadata) = answer.split_once(' ').unwrap();
        Described {
            metadata: from_hex(metadata),
            region: Region::new(base.parse().unwrap(), blocks, block_len).unwrap(),
        }
    }

    /// Has the child connect to `peer`.
    pub fn connect(&mut self, peer: &Described) -> std::result::Result<String, String> {
        let (base, blocks) = (peer.region.base(), peer.region.num_blocks());
        let len = peer.region.block_len();
        self.ask(&format!(
            "connect {} {base} {blocks} {len}",
            to_hex(&peer.metadata)
        ))
    }

    pub fn bytes(&mut self) -> Vec<u8> {
        from_hex(&self.ask("bytes").unwrap())
    }
}

impl Drop for Child {
    fn drop(&mut self) {
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}

pub fn to_hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

pub fn from_hex(text: &str) -> Vec<u8> {
    let digit = |i: usize| (text.as_bytes()[i] as char).to_digit(16).unwrap() as u8;
    (0..text.len() / 2)
        .map(|i| digit(2 * i) << 4 | digit(2 * i + 1))
        .collect()
}

/// The body of `child_main`: nothing in the parent, a loop over commands in a child.
pub fn serve() {
    if std::env::var_os("DT_LOCAL_CHILD").is_none() {
        return;
    }
    let mut node = None;
    let mut peer = None;
    for line in stdin().lock().lines() {
        let words: Vec<&str> = line.as_ref().unwrap().split(' ').collect();
        match command(&mut node, &mut peer, &words) {
            Ok(text) => say(&format!("ok {text}")),
            Err(error) => say(&format!("err {:?}: {error}", error.status)),
        }
    }
    std::process::exit(0);
}

pub fn say(answer: &str) {
    let mut out = stdout().lock();
    writeln!(out, "@{answer}").unwrap();
    out.flush().unwrap();
}

fn command(
    node: &mut Option<Node>,
    peer: &mut Option<(ConnId, Region)>,
    words: &[&str],
) -> Result<String> {
    let number = |i: usize| words[i].parse::<u64>().unwrap();
    match words[0] {
        "create" => {
            let backing = Backing::named(words[1]);
            let made = node.insert(Node::create(words[4], backing, number(2), number(3))?);
            return Ok(format!(
                "{} {}",
                made.region.base(),
                to_hex(made.local.metadata())
            ));
        }
        "dumpable0" => {
            use rustix::process::{DumpableBehavior, set_dumpable_behavior};
            set_dumpable_behavior(DumpableBehavior::NotDumpable).unwrap();
            return Ok(String::new());
        }
        "no_capabilities" => {
            use rustix::thread::{CapabilitySet, CapabilitySets, set_capabilities};
            let none = CapabilitySet::empty();
            let sets = CapabilitySets {
                effective: none,
                permitted: none,
                inheritable: none,
            };
            set_capabilities(None, sets).unwrap();
            return Ok(String::new());
        }
        "fsize" => {
            use rustix::process::{Resource, Rlimit, setrlimit};
            let limit = Some(number(1));
            setrlimit(
                Resource::Fsize,
                Rlimit {
                    current: limit,
                    maximum: limit,
                },
            )
            .unwrap();
            return Ok(String::new());
        }
        "seccomp" => {
            forbid_process_vm();
            return Ok(String::new());
        }
        "exec" | "fork_exec" => {
            if words[0] == "fork_exec" {
                // SAFETY: the forked child only waits, until its parent ends.
                unsafe {
                    if libc::fork() == 0 {
                        libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                        loop {
                            libc::pause();
                        }
                    }
                }
            }
            say("ok");
            panic!("{}", Command::new("sleep").arg("1000").exec());
        }
        _ => {}
    }
    let node = node.as_mut().unwrap();
    let all: Vec<u32> = (0..node.region.num_blocks() as u32).collect();
    match words[0] {
        "fill" => node
            .memory
            .put(&pattern(number(1) as u8, node.memory.bytes)),
        "bytes" => return Ok(to_hex(&node.memory.get())),
        "connect" => {
            let remote = Region::new(number(2), number(3), number(4))?;
            *peer = Some((node.connect(&from_hex(words[1]), remote)?, remote));
        }
        "write" | "read" => {
            let (conn, remote) = peer.unwrap();
            let direction = if words[0] == "read" {
                Direction::Read
            } else {
                Direction::Write
            };
            node.run(conn, direction, &all, &all, &remote)?;
        }
        // As connect, with room for no more descriptors at first, and then for one more each time.
        "starve" => {
            let remote = Region::new(number(2), number(3), number(4))?;
            let metadata = from_hex(words[1]);
            let first_free = rustix::io::dup(stdin()).unwrap().as_raw_fd() as u64;
            let mut room = 0;
            let conn = loop {
                limit_descriptors(first_free + room);
                match node.connect(&metadata, remote) {
                    Err(error) if error.status == Status::NoMemory => room += 1,
                    other => break other?,
                }
            };
            raise_descriptor_limit();
            *peer = Some((conn, remote));
            return Ok(room.to_string());
        }
        // As loop, until another thread starts another program.
        "exec_in_copy" => {
            let (conn, remote) = peer.unwrap();
            node.run(conn, Direction::Write, &all, &all, &remote)?;
            say("ok");
            std::thread::spawn(|| panic!("{}", Command::new("sleep").arg("1000").exec()));
            loop {
                node.run(conn, Direction::Write, &all, &all, &remote)?;
            }
        }
        // Writes all blocks over and over; answers once when it has begun, and when it ends.
        "loop" => {
            let (conn, remote) = peer.unwrap();
            node.run(conn, Direction::Write, &all, &all, &remote)?;
            say("ok");
            loop {
                node.run(conn, Direction::Write, &all, &all, &remote)?;
            }
        }
        "close" => node.local.try_close()?,
        _ => return messages::command(node, *peer, words),
    }
    Ok(String::new())
}

pub fn limit_descriptors(limit: u64) {
    use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
    let maximum = getrlimit(Resource::Nofile).maximum;
    let current = Some(maximum.map_or(limit, |maximum| maximum.min(limit)));
    setrlimit(Resource::Nofile, Rlimit { current, maximum }).unwrap();
}

/// Lets this process have as many descriptors as it may.
pub fn raise_descriptor_limit() {
    use rustix::process::{Resource, getrlimit};
    limit_descriptors(getrlimit(Resource::Nofile).maximum.unwrap_or(1 << 20));
}

/// A seccomp filter for this thread, as containers have it: process_vm_* answers EPERM.
fn forbid_process_vm() {
    let stmt = |code: u32, k: u32| libc::sock_filter {
        code: code as u16,
        jt: 0,
        jf: 0,
        k,
    };
    let jump_if_equal = |k: i64, jt: u8, jf: u8| libc::sock_filter {
        code: (libc::BPF_JMP | libc::BPF_JEQ | libc::BPF_K) as u16,
        jt,
        jf,
        k: k as u32,
    };
    let mut filter = [
        stmt(libc::BPF_LD | libc::BPF_W | libc::BPF_ABS, 0),
        jump_if_equal(libc::SYS_process_vm_readv, 1, 0),
        jump_if_equal(libc::SYS_process_vm_writev, 0, 1),
        stmt(
            libc::BPF_RET | libc::BPF_K,
            libc::SECCOMP_RET_ERRNO | libc::EPERM as u32,
        ),
        stmt(libc::BPF_RET | libc::BPF_K, libc::SECCOMP_RET_ALLOW),
    ];
    let program = libc::sock_fprog {
        len: filter.len() as u16,
        filter: filter.as_mut_ptr(),
    };
    // SAFETY: the kernel copies the program, which lives until then.
    let done = unsafe {
        libc::prctl(libc::PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0) == 0
            && libc::prctl(libc::PR_SET_SECCOMP, libc::SECCOMP_MODE_FILTER, &program) == 0
    };
    assert!(done, "{}", std::io::Error::last_os_error());
}
