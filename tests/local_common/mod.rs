//! What the tests of the LOCAL backend share: memory, transports, and child processes that do as
//! they are told. A child is this test program again, running only its test `child_main`.
#![allow(dead_code, reason = "each test program uses a part")]

pub mod messages;

use std::io::{BufRead, BufReader, Write, stdin, stdout};
use std::os::fd::{AsRawFd, OwnedFd};
use std::os::unix::process::CommandExt;
use std::process::{ChildStdin, ChildStdout, Command, Stdio};
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use datatransport::backend::local::{Local, alloc};
use datatransport::backend::{Backend, ConnId, Direction, Event, OpId, Start};
use datatransport::error::{Error, Result, Status};
use datatransport::extents::Runs;
use datatransport::layout::Layout;
use datatransport::region::{LocalRegion, Region};
use rustix::process::{Pid, Signal, kill_process};

/// Longer than anything here takes on the slowest machine.
pub const PATIENCE: Duration = Duration::from_secs(60);

/// What backs a region.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Backing {
    /// `dt_region_alloc`: peers map it.
    Shared,
    /// A memfd whose size is not sealed.
    Unsealed,
    /// Anonymous memory.
    Foreign,
    /// A memfd of huge pages, sealed; see [`HugePages`].
    Huge,
    /// A file on disk.
    Disk,
    /// A file in /dev/shm.
    Tmpfs,
}

impl Backing {
    fn named(name: &str) -> Backing {
        use Backing::*;
        let all = [Shared, Unsealed, Foreign, Huge, Disk, Tmpfs];
        let found = all
            .into_iter()
            .find(|backing| format!("{backing:?}") == name);
        found.unwrap_or_else(|| panic!("there is no backing {name}"))
    }
}

const HUGE_PAGE: usize = 2 << 20;

/// Huge pages of the machine, reserved for one test at a time. Dropping it gives them back.
pub struct HugePages {
    before: String,
    /// Locked: whoever runs these tests besides waits for the pages.
    _setting: std::fs::File,
}

impl HugePages {
    const SETTING: &str = "/sys/kernel/mm/hugepages/hugepages-2048kB/nr_hugepages";

    /// `None`, and a loud word, when this machine does not give them.
    pub fn reserve(pages: u64) -> Option<HugePages> {
        let set = || -> std::io::Result<(HugePages, u64)> {
            let setting = std::fs::File::open(Self::SETTING)?;
            rustix::fs::flock(&setting, rustix::fs::FlockOperation::LockExclusive)?;
            let before = std::fs::read_to_string(Self::SETTING)?;
            let wanted = before.trim().parse::<u64>().unwrap() + pages;
            std::fs::write(Self::SETTING, wanted.to_string())?;
            let now = std::fs::read_to_string(Self::SETTING)?;
            let missing = wanted - now.trim().parse::<u64>().unwrap();
            let reserved = HugePages {
                before,
                _setting: setting,
            };
            Ok((reserved, missing))
        };
        match set() {
            Ok((reserved, 0)) => return Some(reserved),
            Ok((_, missing)) => skip(format!("{missing} of {pages} huge pages are missing")),
            Err(error) => skip(format!("huge pages: {}: {error}", Self::SETTING)),
        }
        None
    }
}

/// A test that cannot run says so; where everything must be there, that is a failure.
pub fn skip(why: String) {
    assert!(std::env::var_os("CI").is_none(), "{why}");
    // Past what the test harness keeps to itself.
    let _ = std::io::Write::write_fmt(&mut std::io::stderr(), format_args!("SKIPPED: {why}\n"));
}

impl Drop for HugePages {
    fn drop(&mut self) {
        let _ = std::fs::write(Self::SETTING, &self.before);
    }
}

/// A new file in `folder` that goes when it is closed.
fn unnamed_file(folder: &std::path::Path) -> OwnedFd {
    static NEXT: AtomicU64 = AtomicU64::new(0);
    let number = NEXT.fetch_add(1, Ordering::Relaxed);
    let path = folder.join(format!("dt-test-{}-{number}", std::process::id()));
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).create_new(true).open(&path);
    std::fs::remove_file(&path).unwrap();
    file.unwrap().into()
}

/// Memory that is looked at only through raw pointers, because others write it.
pub struct Memory {
    pub address: usize,
    pub bytes: usize,
    mapped: usize,
    pub fd: Option<OwnedFd>,
}

impl Memory {
    pub fn new(backing: Backing, bytes: usize) -> Memory {
        use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};
        use rustix::mm::{MapFlags, ProtFlags, mmap, mmap_anonymous};
        let mode = ProtFlags::READ | ProtFlags::WRITE;
        let nowhere = std::ptr::null_mut();
        let map = |fd: OwnedFd, bytes: usize| {
            ftruncate(&fd, bytes as u64).unwrap();
            // SAFETY: the kernel chooses a free range.
            let at = unsafe { mmap(nowhere, bytes, mode, MapFlags::SHARED, &fd, 0).unwrap() };
            (at as usize, Some(fd))
        };
        let mut mapped = bytes;
        let (address, fd) = match backing {
            Backing::Shared => {
                let (address, fd) = alloc::alloc(bytes).unwrap();
                (address, Some(fd))
            }
            Backing::Unsealed => {
                let fd = memfd_create("dt-unsealed", MemfdFlags::CLOEXEC).unwrap();
                map(fd, bytes)
            }
            Backing::Huge => {
                mapped = bytes.next_multiple_of(HUGE_PAGE);
                let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
                let huge = MemfdFlags::HUGETLB | MemfdFlags::HUGE_2MB;
                let (at, fd) = map(memfd_create("dt-huge", flags | huge).unwrap(), mapped);
                fcntl_add_seals(fd.as_ref().unwrap(), SealFlags::SHRINK).unwrap();
                (at, fd)
            }
            Backing::Disk => {
                let program = std::env::current_exe().unwrap();
                map(unnamed_file(program.parent().unwrap()), bytes)
            }
            Backing::Tmpfs => map(unnamed_file("/dev/shm".as_ref()), bytes),
            Backing::Foreign => {
                // SAFETY: the kernel chooses a free range.
                let at = unsafe { mmap_anonymous(nowhere, bytes, mode, MapFlags::PRIVATE) };
                (at.unwrap() as usize, None)
            }
        };
        Memory {
            address,
            bytes,
            mapped,
            fd,
        }
    }

    pub fn get(&self) -> Vec<u8> {
        let mut copy = vec![0; self.bytes];
        // SAFETY: `self` keeps the memory mapped.
        unsafe { std::ptr::copy(self.address as *const u8, copy.as_mut_ptr(), self.bytes) };
        copy
    }

    pub fn put(&self, bytes: &[u8]) {
        assert_eq!(bytes.len(), self.bytes);
        // SAFETY: `self` keeps the memory mapped.
        unsafe { std::ptr::copy(bytes.as_ptr(), self.address as *mut u8, self.bytes) };
    }
}

impl Drop for Memory {
    fn drop(&mut self) {
        // SAFETY: all kinds of memory were mapped here, and transports of it are closed before.
        unsafe { alloc::free(self.address, self.mapped) };
    }
}

/// Bytes that differ from block to block and from seed to seed.
pub fn pattern(seed: u8, bytes: usize) -> Vec<u8> {
    (0..bytes)
        .map(|i| (i * 31 + i / 256 * 7 + i / 4096 * 13) as u8 ^ seed)
        .collect()
}

/// A transport and its memory. The transport is dropped first.
pub struct Node {
    pub local: Local,
    pub region: Region,
    pub memory: Memory,
    /// What `progress` will tell first: transfers that were done as they started, losses that
    /// nobody waited for.
    untold: Vec<Event>,
    next: u64,
}

impl Node {
    pub fn new(backing: Backing, blocks: u64, block_len: u64) -> Node {
        Node::named("node", backing, blocks, block_len)
    }

    pub fn named(name: &str, backing: Backing, blocks: u64, block_len: u64) -> Node {
        Node::create(name, backing, blocks, block_len).unwrap()
    }

    fn create(name: &str, backing: Backing, blocks: u64, block_len: u64) -> Result<Node> {
        let memory = Memory::new(backing, (blocks * block_len) as usize);
        let region = Region::new(memory.address as u64, blocks, block_len).unwrap();
        let fd = memory.fd.as_ref().map(|fd| (fd.as_raw_fd(), 0));
        // SAFETY: the node drops its transport before its memory.
        let local = Local::create(unsafe { LocalRegion::new(region) }, fd, name)?;
        Ok(Node {
            local,
            region,
            memory,
            untold: Vec::new(),
            next: 0,
        })
    }

    pub fn id(&mut self) -> u64 {
        self.next += 1;
        self.next
    }

    pub fn connect(&mut self, metadata: &[u8], remote: impl Into<Layout>) -> Result<ConnId> {
        let conn = ConnId(self.id());
        self.local
            .connect(conn, metadata, &remote.into(), None)
            .map(|()| conn)
    }

    pub fn connect_to(&mut self, peer: &Described) -> Result<ConnId> {
        self.connect(&peer.metadata, peer.region)
    }

    pub fn described(&self) -> Described {
        Described {
            metadata: self.local.metadata().to_vec(),
            region: self.region,
        }
    }

    pub fn start(
        &mut self,
        conn: ConnId,
        direction: Direction,
        locals: &[u32],
        remotes: &[u32],
        remote: &(impl Clone + Into<Layout>),
    ) -> Result<OpId> {
        let op = OpId(self.id());
        let runs = Runs::merge(locals, remotes, &self.region, &remote.clone().into())?;
        if self.local.start(conn, op, direction, runs)? == Start::Done {
            self.untold.push(Event::Ended { op, result: Ok(()) });
        }
        Ok(op)
    }

    /// One progress of at most a millisecond.
    pub fn progress(&mut self) -> Vec<Event> {
        let mut events = std::mem::take(&mut self.untold);
        self.local
            .progress(Instant::now() + Duration::from_millis(1), &mut events);
        events
    }

    /// Runs a transfer to its end.
    pub fn run(
        &mut self,
        conn: ConnId,
        direction: Direction,
        locals: &[u32],
        remotes: &[u32],
        remote: &(impl Clone + Into<Layout>),
    ) -> Result<()> {
        let op = self.start(conn, direction, locals, remotes, remote)?;
        self.until(|event| match event {
            Event::Ended { op: ended, result } if *ended == op => Some(result.clone()),
            _ => None,
        })
    }

    /// Progresses until `wanted` finds its event.
    pub fn until<T>(&mut self, mut wanted: impl FnMut(&Event) -> Option<T>) -> T {
        let deadline = Instant::now() + PATIENCE;
        while Instant::now() < deadline {
            let events = self.progress();
            let found = events.iter().find_map(&mut wanted);
            // A loss is told once: whoever waits for something else must not swallow it.
            let untold =
                |event: &Event| matches!(event, Event::Lost { .. }) && wanted(event).is_none();
            self.untold.extend(events.into_iter().filter(untold));
            if let Some(found) = found {
                return found;
            }
            if self.local.idle_for().is_some() {
                std::thread::yield_now();
            }
        }
        panic!("the event has not come");
    }

    /// Progresses until the peer is reported lost.
    pub fn until_lost(&mut self, conn: ConnId) -> Error {
        self.until(|event| match event {
            Event::Lost { conn: lost, error } if *lost == conn => Some(error.clone()),
            _ => None,
        })
    }
}

/// What one needs to know of a peer.
#[derive(Clone)]
pub struct Described {
    pub metadata: Vec<u8>,
    pub region: Region,
}

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

fn say(answer: &str) {
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

fn limit_descriptors(limit: u64) {
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

/// How many descriptors this process has open, and its mappings by name.
pub fn holdings() -> (usize, usize) {
    let fds = std::fs::read_dir("/proc/self/fd").unwrap().count();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    (fds, maps.lines().count())
}

/// How many mappings of the file with this inode this process has; 0 is no file.
pub fn mappings_of(ino: u64) -> usize {
    if ino == 0 {
        return 0;
    }
    let ino = ino.to_string();
    let maps = std::fs::read_to_string("/proc/self/maps").unwrap();
    maps.lines()
        .filter(|line| line.split_ascii_whitespace().nth(4) == Some(&ino))
        .count()
}

/// A field of the JSON body of metadata.
pub fn body(metadata: &[u8]) -> serde_json::Value {
    serde_json::from_slice(&metadata[16..metadata.len() - 8]).unwrap()
}

/// Metadata around a body of one's own making.
pub fn forge(body: &serde_json::Value) -> Vec<u8> {
    use sha2::{Digest, Sha256};
    let body = body.to_string();
    let mut blob = b"DTLOCAL\0\x02\0\0\0".to_vec();
    blob.extend((body.len() as u32).to_le_bytes());
    blob.extend(body.as_bytes());
    let sum = Sha256::digest(&blob);
    blob.extend(&sum[..8]);
    blob
}

pub fn status<T: std::fmt::Debug>(result: Result<T>) -> Status {
    result.unwrap_err().status
}
