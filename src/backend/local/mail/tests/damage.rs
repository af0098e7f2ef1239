//! What programs that go wrong, or mean harm, can write into a mailbox.

use super::*;
use rustix::fs::{MemfdFlags, SealFlags, fcntl_add_seals, ftruncate, memfd_create};

/// What a program that means harm does to lane 0, which it has.
fn damage(inbox: &mut Inbox, what: impl Fn(&MailFile)) {
    let mut honest = Sender::new("honest");
    let mut evil = Sender::new("evil");
    evil.send(inbox, b"good").unwrap();
    honest.send(inbox, b"before").unwrap();
    let before = inbox.refused();
    let mail = open(inbox);
    what(&mail);
    mail.ring_bell(0);
    let senders: Vec<String> = all(inbox).into_iter().map(|(name, _)| name).collect();
    assert!(senders.contains(&"honest".to_owned()), "{senders:?}");
    assert_eq!(inbox.refused(), before + 1);
    // It changes nothing any more, however often it is told of.
    for _ in 0..3 {
        mail.ring_bell(0);
        assert!(all(inbox).is_empty());
    }
    honest.send(inbox, b"after").unwrap();
    only(inbox, "honest", b"after");
    // The sender finds out, and takes another lane.
    evil.send(inbox, b"better").unwrap();
    only(inbox, "evil", b"better");
    drop((evil, honest));
    assert!(all(inbox).is_empty());
    assert_eq!(inbox.refused(), before + 1);
    // Lane 0 is like new.
    assert_eq!(mail.tail(0).load(Ordering::Acquire), 0);
    assert_eq!(mail.head(0).load(Ordering::Acquire), 0);
}

#[test]
fn damage_stays_in_its_lane() {
    let mut inbox = inbox();
    let empty = memory(&inbox);
    let tail_at = |tail: u64| move |mail: &MailFile| mail.tail(0).store(tail, Ordering::Release);
    // "evil", "good" and their heads.
    let end = 4 + 4 + 4 + 4;
    for tail in [
        1,
        end - 1,
        end + 1,
        RING,
        RING + 1,
        u64::MAX,
        1 << 63,
        GIVEN_UP,
    ] {
        damage(&mut inbox, tail_at(tail));
    }
    // A frame that says that it goes on, and other heads of both frames.
    for at in [0, 8] {
        for byte in 0..4 {
            for value in [3, 0x11, 0x40, 0x80, 0xff] {
                damage(&mut inbox, |mail| {
                    mail.write(0, at + byte, &[value]).unwrap()
                });
            }
        }
    }
    damage(&mut inbox, |mail| mail.write(0, 4, b"e\0il").unwrap());
    damage(&mut inbox, |mail| {
        mail.write(0, 4, b"\xff\xff\xff\xff").unwrap()
    });
    assert_eq!(memory(&inbox), empty);
}

#[test]
fn a_reader_that_lies_harms_itself_alone() {
    let mut inbox = inbox();
    let mut sender = Sender::new("sender");
    sender.send(&inbox, b"1").unwrap();
    for head in [1, RING, GIVEN_UP, 1 << 63] {
        let mail = open(&inbox);
        mail.head(0).store(
            mail.tail(0).load(Ordering::Acquire).wrapping_add(head),
            Ordering::Release,
        );
        // Another lane, from the beginning.
        sender.send(&inbox, b"2").unwrap();
        let mut lanes = (0..mail.lanes()).filter(|lane| !mail.lock_lane(*lane).unwrap());
        assert!(lanes.next().is_some_and(|lane| lane > 0));
        drop(mail);
        drop(sender);
        inbox = self::inbox();
        sender = Sender::new("sender");
        sender.send(&inbox, b"1").unwrap();
    }
    only(&mut inbox, "sender", b"1");
}

#[test]
fn a_lane_that_was_given_up_is_not_taken() {
    let mut inbox = inbox();
    let mail = open(&inbox);
    assert!(mail.lock_lane(0).unwrap());
    mail.tail(0).store(RING * 2, Ordering::Release);
    mail.ring_bell(0);
    assert!(all(&mut inbox).is_empty());
    assert_eq!(inbox.refused(), 1);
    mail.tail(0).store(GIVEN_UP, Ordering::Release);
    mail.unlock_lane(0);
    let mut sender = Sender::new("sender");
    sender.send(&inbox, b"heard").unwrap();
    only(&mut inbox, "sender", b"heard");
    assert_eq!(
        mail.tail(0).load(Ordering::Acquire),
        0,
        "made new meanwhile"
    );
}

#[test]
fn bells_without_messages_take_nothing() {
    let mut inbox = inbox();
    let empty = memory(&inbox);
    let mail = open(&inbox);
    for _ in 0..10 {
        for lane in 0..LANES {
            mail.ring_bell(lane);
        }
        assert!(all(&mut inbox).is_empty());
    }
    assert_eq!((inbox.refused(), memory(&inbox)), (0, empty));
    // Zeros in all lanes.
    for lane in 0..LANES {
        mail.tail(lane).store(RING, Ordering::Release);
        mail.ring_bell(lane);
    }
    assert!(all(&mut inbox).is_empty());
    assert_eq!((inbox.refused(), memory(&inbox)), (LANES as u64, empty));
    Sender::new("late").send(&inbox, b"x").unwrap_err();
    assert!(all(&mut inbox).is_empty());
    Sender::new("late").send(&inbox, b"x").unwrap();
    only(&mut inbox, "late", b"x");
}

#[test]
fn foreign_files_are_checked() {
    let inbox = inbox();
    let refused = |file: OwnedFd, kind: Kind, sentence: &str| {
        let error: Error = MailFile::of_peer(file, kind, ID).unwrap_err();
        assert_eq!(error.status, Status::PeerLost, "{error}");
        assert!(error.message.contains(sentence), "{error}");
    };
    let file = |bytes: u64, seals: SealFlags| {
        let flags = MemfdFlags::CLOEXEC | MemfdFlags::ALLOW_SEALING;
        let file = memfd_create("dt-test", flags).unwrap();
        ftruncate(&file, bytes).unwrap();
        fcntl_add_seals(&file, seals).unwrap();
        file
    };
    let right = 65536 + 5 * RING;
    refused(file(right, SealFlags::GROW), Kind::Plain, "not sealed");
    for size in [0, 100, 65536, right - 1, right + 4096, 65536 + 1022 * RING] {
        refused(file(size, SealFlags::SHRINK), Kind::Plain, "kind or size");
    }
    refused(file(right, SealFlags::SHRINK), Kind::Huge, "kind or size");
    refused(file(right, SealFlags::SHRINK), Kind::Plain, "this version");
    let other = Inbox::create(ID + 1).unwrap();
    refused(again(&other), Kind::Plain, "restarted");
    // Nobody can cut short, or enlarge, what others use.
    for size in [0, right, 65536 + 4000 * RING] {
        ftruncate(again(&inbox), size).unwrap_err();
    }
}
