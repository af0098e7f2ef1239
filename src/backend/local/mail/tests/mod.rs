//! The two sides of a mailbox in one process.

mod damage;

use std::collections::{BTreeMap, VecDeque};
use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use proptest::prelude::*;
use rustix::fs::fstat;
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

use super::file::LANES;
use super::frames::{self, Frame, GIVEN_UP, RING};
use super::*;
use crate::backend::local::foreign::Kind;
use crate::backend::{MAX_MESSAGE, Message};
use crate::error::{Error, Result, Status};

const ID: u128 = 0x1234_5678;

fn inbox() -> Inbox {
    Inbox::create(ID).unwrap()
}

/// A description of its own, as a peer has it.
fn again(inbox: &Inbox) -> OwnedFd {
    let path = format!("/proc/self/fd/{}", inbox.file().as_raw_fd());
    let mut options = std::fs::OpenOptions::new();
    options.read(true).write(true).open(path).unwrap().into()
}

fn open(inbox: &Inbox) -> MailFile {
    MailFile::of_peer(again(inbox), Kind::Plain, ID).unwrap()
}

/// One transport that sends to one inbox.
struct Sender {
    name: String,
    outboxes: Outboxes,
}

impl Sender {
    fn new(name: &str) -> Sender {
        let mut outboxes = Outboxes::default();
        outboxes.join(ID);
        Sender {
            name: name.to_owned(),
            outboxes,
        }
    }

    fn send(&mut self, inbox: &Inbox, message: &[u8]) -> Result<()> {
        self.outboxes
            .send(ID, &self.name, message, || Ok(open(inbox)))
    }
}

fn received(inbox: &mut Inbox, most: usize) -> Vec<(String, Vec<u8>)> {
    let mut messages = Vec::new();
    inbox.receive(most, &mut messages);
    let pair = |message: Message| (message.sender.to_string(), message.bytes);
    messages.into_iter().map(pair).collect()
}

fn all(inbox: &mut Inbox) -> Vec<(String, Vec<u8>)> {
    received(inbox, usize::MAX)
}

/// True when nobody has the lane.
fn is_free(inbox: &Inbox, lane: usize) -> bool {
    let mail = open(inbox);
    let free = mail.lock_lane(lane).unwrap();
    // Another test may just be starting a process, which has a copy of the descriptor for a moment.
    if free {
        mail.unlock_lane(lane);
    }
    free
}

/// The only message that there is.
fn only(inbox: &mut Inbox, sender: &str, bytes: &[u8]) {
    assert_eq!(all(inbox), [(sender.to_owned(), bytes.to_vec())]);
}

fn status(result: Result<()>) -> Status {
    result.unwrap_err().status
}

/// Bytes that the file really takes.
fn memory(inbox: &Inbox) -> u64 {
    fstat(inbox.file()).unwrap().st_blocks as u64 * 512
}

#[test]
fn messages_wait_for_a_late_reader() {
    let mut inbox = inbox();
    let mut senders = ["a", "b", &"n".repeat(1000)].map(Sender::new);
    for i in 0..2_000_u32 {
        for sender in &mut senders {
            sender.send(&inbox, &i.to_le_bytes().repeat(64)).unwrap();
        }
    }
    let mut next = BTreeMap::new();
    for (name, bytes) in all(&mut inbox) {
        let next: &mut u32 = next.entry(name).or_default();
        assert_eq!(bytes, next.to_le_bytes().repeat(64));
        *next += 1;
    }
    let counts: Vec<u32> = next.values().copied().collect();
    assert_eq!(counts, [2_000; 3]);
    assert!(all(&mut inbox).is_empty());
}

#[test]
fn a_full_mailbox_is_busy_until_it_is_read() {
    let mut inbox = inbox();
    let mut sender = Sender::new("sender");
    // Twice around the ring, and across its end at ever other places.
    let mut sent = 0_u32;
    for round in 0..3 {
        let message = |n: u32| [&n.to_le_bytes()[..], &vec![n as u8; MAX_MESSAGE - 4]].concat();
        let first = sent;
        let error = loop {
            match sender.send(&inbox, &message(sent)) {
                Ok(()) => sent += 1,
                Err(error) => break error,
            }
        };
        assert_eq!(error.status, Status::Busy, "{error}");
        assert!(error.message.contains("mailbox is full"), "{error}");
        assert_eq!(sent - first, 15, "round {round}");
        // Somebody else's does not suffer.
        Sender::new("other").send(&inbox, b"x").unwrap();
        let (others, own): (Vec<_>, Vec<_>) = all(&mut inbox)
            .into_iter()
            .partition(|(sender, _)| sender == "other");
        assert_eq!(others.len(), 1);
        for ((_, bytes), n) in own.iter().zip(first..) {
            assert!(*bytes == message(n), "message {n}");
        }
        assert_eq!(own.len(), 15);
    }
}

#[test]
fn the_reader_takes_no_more_than_it_asks_for_and_from_all_in_turn() {
    let mut inbox = inbox();
    let (mut eager, mut modest) = (Sender::new("eager"), Sender::new("modest"));
    for n in 0..1_000_u16 {
        eager.send(&inbox, &n.to_le_bytes()).unwrap();
    }
    modest.send(&inbox, b"please").unwrap();
    assert!(received(&mut inbox, 0).is_empty());
    let first = received(&mut inbox, 100);
    assert_eq!(first.len(), 100);
    assert!(first.iter().any(|(sender, _)| sender == "modest"));
    let mut rest = first;
    while rest.len() < 1_001 {
        let more = received(&mut inbox, 1);
        assert_eq!(more.len(), 1);
        rest.extend(more);
    }
    let eager = rest.iter().filter(|(sender, _)| sender == "eager");
    assert!(
        eager.map(|(_, bytes)| bytes).eq(&(0..1_000_u16)
            .map(|n| n.to_le_bytes().to_vec())
            .collect::<Vec<_>>())
    );
    assert!(all(&mut inbox).is_empty());
}

#[test]
fn what_was_sent_needs_no_sender() {
    let mut inbox = inbox();
    for name in ["first", "second", "third"] {
        Sender::new(name).send(&inbox, b"last words").unwrap();
    }
    let senders: Vec<String> = all(&mut inbox).into_iter().map(|(name, _)| name).collect();
    assert_eq!(senders, ["first", "second", "third"]);
}

#[test]
fn memory_comes_back_when_the_sender_has_left() {
    let mut inbox = inbox();
    let empty = memory(&inbox);
    let mut sender = Sender::new("sender");
    for _ in 0..15 {
        sender.send(&inbox, &[7; MAX_MESSAGE]).unwrap();
    }
    assert!(memory(&inbox) > empty + 900_000);
    assert_eq!(all(&mut inbox).len(), 15);
    drop(sender);
    assert!(all(&mut inbox).is_empty());
    assert_eq!(memory(&inbox), empty);
    // The other order: it leaves, and is read later.
    Sender::new("sender").send(&inbox, &[7; 9000]).unwrap();
    assert!(memory(&inbox) > empty);
    assert_eq!(all(&mut inbox).len(), 1);
    assert_eq!(memory(&inbox), empty);
    Sender::new("another").send(&inbox, b"again").unwrap();
    only(&mut inbox, "another", b"again");
}

// A sender that removes a peer and adds it again is one sender.
#[test]
fn the_order_outlives_the_connection() {
    let mut inbox = inbox();
    let mut sender = Sender::new("sender");
    for n in 0..100_u8 {
        sender.send(&inbox, &[n]).unwrap();
        // Later the new connection comes before the old one goes.
        if n < 50 {
            sender.outboxes.leave(ID);
            sender.outboxes.join(ID);
        } else {
            sender.outboxes.join(ID);
            sender.outboxes.leave(ID);
        }
    }
    let numbers: Vec<u8> = all(&mut inbox)
        .into_iter()
        .map(|(_, bytes)| bytes[0])
        .collect();
    assert_eq!(numbers, (0..100).collect::<Vec<u8>>());
    // Nothing of a peer is kept that has been read, or that nobody will read.
    sender.outboxes.leave(ID);
    assert!(is_free(&inbox, 0));
    sender.outboxes.join(ID);
    sender.send(&inbox, b"unread").unwrap();
    sender.outboxes.leave(ID);
    assert!(!is_free(&inbox, 0));
    let mail = open(&inbox);
    drop(inbox);
    sender.outboxes.join(ID + 1);
    sender.outboxes.leave(ID + 1);
    assert!(mail.lock_lane(0).unwrap());
}

// No other connection needs to end for that.
#[test]
fn a_lane_that_has_outlived_its_connections_ends_with_its_messages() {
    let mut read = inbox();
    let (gone, deaf) = (
        Inbox::create(ID + 1).unwrap(),
        Inbox::create(ID + 2).unwrap(),
    );
    let mut outboxes = Outboxes::default();
    let start = Instant::now();
    let sweep = |outboxes: &mut Outboxes, ms| outboxes.sweep(|| start + Duration::from_millis(ms));
    for (n, inbox) in [&read, &gone, &deaf].into_iter().enumerate() {
        let id = ID + n as u128;
        outboxes.join(id);
        let open = || MailFile::of_peer(again(inbox), Kind::Plain, id);
        outboxes.send(id, "sender", b"message", open).unwrap();
        outboxes.leave(id);
    }
    // Three looks find all three, which are still awaited.
    for ms in 0..3 {
        sweep(&mut outboxes, ms);
    }
    assert!(!is_free(&read, 0));
    let mail = MailFile::of_peer(again(&gone), Kind::Plain, ID + 1).unwrap();
    only(&mut read, "sender", b"message");
    drop(gone);
    // A look costs a system call, so it has its time.
    for _ in 0..100 {
        sweep(&mut outboxes, 2);
    }
    assert!(!is_free(&read, 0));
    assert!(!mail.lock_lane(0).unwrap());
    for ms in 3..6 {
        sweep(&mut outboxes, ms);
    }
    assert!(is_free(&read, 0));
    assert!(mail.lock_lane(0).unwrap());
    let mail = MailFile::of_peer(again(&deaf), Kind::Plain, ID + 2).unwrap();
    assert!(!mail.lock_lane(0).unwrap());
    outboxes.join(ID + 2);
    sweep(&mut outboxes, 6);
    assert!(!mail.lock_lane(0).unwrap());
    // Not an orphan any more: nobody asks what time it is.
    outboxes.sweep(|| unreachable!());
}

#[test]
fn every_lane_is_one_sender() {
    // Each takes a descriptor.
    let limit = getrlimit(Resource::Nofile);
    let all_there_are = Rlimit {
        current: limit.maximum,
        ..limit
    };
    setrlimit(Resource::Nofile, all_there_are).unwrap();
    let mut inbox = inbox();
    let mut senders: Vec<Sender> = (0..LANES).map(|n| Sender::new(&n.to_string())).collect();
    for sender in &mut senders {
        sender.send(&inbox, b"here").unwrap();
    }
    let error = Sender::new("late").send(&inbox, b"x").unwrap_err();
    assert_eq!(error.status, Status::Busy);
    assert!(error.message.contains("all 1021 lanes"), "{error}");
    // One that has left, but whose messages were not read, is no room.
    senders.truncate(LANES - 1);
    assert_eq!(status(Sender::new("late").send(&inbox, b"x")), Status::Busy);
    let messages = all(&mut inbox);
    assert_eq!(messages.len(), LANES);
    for (n, (sender, bytes)) in messages.iter().enumerate() {
        assert_eq!((sender, &bytes[..]), (&n.to_string(), &b"here"[..]));
    }
    Sender::new("late").send(&inbox, b"x").unwrap();
    only(&mut inbox, "late", b"x");
}

#[test]
fn what_was_written_but_not_announced_is_no_obstacle() {
    let mut inbox = inbox();
    let mut bytes = Vec::new();
    frames::append(&mut bytes, Frame::Name("killed"));
    frames::append(&mut bytes, Frame::Message(b"hardly sent"));
    let killed = open(&inbox);
    assert!(killed.lock_lane(0).unwrap());
    killed.write(0, 0, &bytes).unwrap();
    killed.tail(0).store(bytes.len() as u64, Ordering::Release);
    killed.unlock_lane(0);
    assert!(all(&mut inbox).is_empty());
    Sender::new("next").send(&inbox, b"sent").unwrap();
    let senders: Vec<String> = all(&mut inbox).into_iter().map(|(name, _)| name).collect();
    assert_eq!(senders, ["killed", "next"]);
    Sender::new("third").send(&inbox, b"in lane 0").unwrap();
    assert!(open(&inbox).tail(0).load(Ordering::Acquire) > 0);
    only(&mut inbox, "third", b"in lane 0");
}

// A sender that is killed rings no bell.
#[test]
fn lanes_of_the_killed_come_back() {
    let mut inbox = inbox();
    let empty = memory(&inbox);
    let mail = open(&inbox);
    let mut senders: Vec<Sender> = (0..20).map(|n| Sender::new(&n.to_string())).collect();
    for sender in &mut senders {
        sender.send(&inbox, &[1; 10_000]).unwrap();
    }
    assert_eq!(all(&mut inbox).len(), 20);
    for sender in senders {
        drop(sender);
        mail.answer_bells(|_| {});
    }
    for _ in 0..25 {
        all(&mut inbox);
    }
    assert_eq!(memory(&inbox), empty);
}

#[test]
fn a_forked_child_neither_frees_a_lane_nor_keeps_it() {
    let mut inbox = inbox();
    let mut sender = Some(Sender::new("sender"));
    sender.as_mut().unwrap().send(&inbox, b"parent").unwrap();
    let fork = |drop_it: bool, sender: &mut Option<Sender>, wait: bool| {
        // SAFETY: the child calls nothing but what works in a copy of one thread, and `_exit`.
        unsafe {
            let pid = libc::fork();
            if pid == 0 {
                if drop_it {
                    drop(sender.take());
                }
                if wait {
                    libc::prctl(libc::PR_SET_PDEATHSIG, libc::SIGKILL);
                    libc::pause();
                }
                libc::_exit(0);
            }
            pid
        }
    };
    let reap = |pid: libc::pid_t| {
        let pid = rustix::process::Pid::from_raw(pid);
        rustix::process::waitpid(pid, rustix::process::WaitOptions::empty()).unwrap();
    };
    reap(fork(true, &mut sender, false));
    assert!(!is_free(&inbox, 0));
    let child = fork(false, &mut sender, true);
    sender = None;
    assert!(sender.is_none() && is_free(&inbox, 0));
    only(&mut inbox, "sender", b"parent");
    let pid = rustix::process::Pid::from_raw(child).unwrap();
    rustix::process::kill_process(pid, rustix::process::Signal::KILL).unwrap();
    reap(child);
}

#[test]
fn senders_and_reader_at_once() {
    const EACH: u32 = 5_000;
    let mut inbox = inbox();
    let mut next = [0_u32; 3];
    let deadline = std::time::Instant::now() + std::time::Duration::from_secs(60);
    std::thread::scope(|scope| {
        for number in 0..next.len() {
            let mail = again(&inbox);
            scope.spawn(move || {
                let mut sender = Sender::new(&number.to_string());
                let mut mail = Some(MailFile::of_peer(mail, Kind::Plain, ID).unwrap());
                for n in 0..EACH {
                    let message = n.to_le_bytes().repeat(1 + n as usize % 300);
                    loop {
                        let opened = || Ok(mail.take().unwrap());
                        match sender.outboxes.send(ID, &sender.name, &message, opened) {
                            Ok(()) => break,
                            Err(error) if error.status == Status::Busy => {
                                assert!(std::time::Instant::now() < deadline, "no room for {n}");
                                std::thread::yield_now();
                            }
                            Err(error) => panic!("{error}"),
                        }
                    }
                }
            });
        }
        while next.iter().sum::<u32>() < EACH * 3 && std::time::Instant::now() < deadline {
            for (sender, bytes) in received(&mut inbox, 100) {
                let next = &mut next[sender.parse::<usize>().unwrap()];
                assert!(bytes == next.to_le_bytes().repeat(1 + *next as usize % 300));
                *next += 1;
            }
        }
    });
    assert_eq!(next, [EACH; 3]);
    assert_eq!(inbox.refused(), 0);
}

#[derive(Clone, Debug)]
enum Step {
    Send { sender: usize, bytes: usize },
    Receive { most: usize },
    Leave { sender: usize },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let sizes = prop_oneof![1..50_usize, 1..=MAX_MESSAGE, Just(MAX_MESSAGE)];
    let step = prop_oneof![
        6 => (0..3_usize, sizes).prop_map(|(sender, bytes)| Step::Send { sender, bytes }),
        2 => (0..9_usize).prop_map(|most| Step::Receive { most }),
        1 => (0..3_usize).prop_map(|sender| Step::Leave { sender }),
    ];
    prop::collection::vec(step, 1..150)
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(50))]

    // Against one queue for each sender: the same messages in the same order, and no room only
    // when a message more would not fit in the ring.
    #[test]
    fn is_a_queue_for_each_sender(steps in steps()) {
        let mut inbox = inbox();
        let names = ["a", "b", "a long name"];
        let mut senders = names.map(Sender::new);
        let mut model: BTreeMap<&str, VecDeque<Vec<u8>>> = BTreeMap::new();
        for (count, step) in steps.into_iter().chain([Step::Receive { most: usize::MAX }]).enumerate() {
            match step {
                Step::Send { sender, bytes } => {
                    let numbered = (count as u64).to_le_bytes();
                    let mut message = numbered.repeat(bytes.div_ceil(8));
                    message.truncate(bytes);
                    let queue = model.entry(names[sender]).or_default();
                    let waiting: usize = queue.iter().map(|message| message.len() + 4).sum();
                    match senders[sender].send(&inbox, &message) {
                        Ok(()) => queue.push_back(message),
                        Err(error) => {
                            prop_assert_eq!(error.status, Status::Busy);
                            prop_assert!(waiting + bytes + 4 + 4 + names[sender].len() > RING as usize);
                        }
                    }
                }
                Step::Receive { most } => {
                    let waiting: usize = model.values().map(VecDeque::len).sum();
                    let messages = received(&mut inbox, most);
                    prop_assert_eq!(messages.len(), waiting.min(most));
                    for (sender, bytes) in messages {
                        let expected = model.get_mut(&sender[..]).unwrap().pop_front();
                        prop_assert!(expected == Some(bytes));
                    }
                }
                // Removed and added again.
                Step::Leave { sender } => {
                    senders[sender].outboxes.leave(ID);
                    senders[sender].outboxes.join(ID);
                }
            }
        }
        prop_assert!(all(&mut inbox).is_empty());
        prop_assert_eq!(inbox.refused(), 0);
    }
}
