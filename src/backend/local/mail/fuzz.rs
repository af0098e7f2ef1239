//! A mailbox in which a sender that means harm writes what it likes, beside one that is honest.
//!
//! In the strict game the hostile sender keeps to its own lane: then a model, which reads the ring in
//! one simple pass, says exactly which messages come out, and the honest sender loses nothing. In the
//! wild game it writes anywhere in the file, and only what comes out must make sense.

use std::os::fd::AsRawFd;
use std::sync::atomic::Ordering;

use super::frames::{self, Frame, GIVEN_UP, RING};
use super::*;
use crate::backend::local::foreign::Kind;
use crate::backend::{MAX_MESSAGE, MAX_NAME, Message};
use crate::error::Status;
use crate::fuzz::Input;
use crate::fuzz::meter::measured;

const ID: u128 = 0x1234_5678;
/// That of the hostile sender, which comes first.
const LANE: usize = 0;
/// Lanes that it may tamper with in the wild game.
const NEAR: usize = 6;
/// What receiving takes besides the messages: a buffer for the longest frame, and lists.
const ROOM: usize = 256 << 10;

/// Choices of a hostile sender, and of the two that do not know about it.
pub fn local_mail(data: &[u8]) {
    let mut input = Input::new(data);
    let strict = input.byte() & 1 == 0;
    let mut game = Game::new();
    while !input.is_empty() {
        let step = input.below(16);
        match step {
            0..4 => game.append_bytes(&mut input),
            4..7 => game.append_frame(&mut input),
            7 => game.write_anywhere(&mut input, strict),
            8 => game.set_position(&mut input, strict),
            9 => game.ring(&mut input),
            10 | 11 => game.honest_sends(&mut input),
            12 | 13 => {
                let most = [usize::MAX, 1, 2, 65][input.below(4)];
                game.receive(most, strict);
            }
            _ if strict => game.leave_and_return(),
            _ => game.write_directory(&mut input),
        }
    }
    game.receive(usize::MAX, strict);
    if strict {
        game.leave_and_return();
    }
}

struct Game {
    inbox: Inbox,
    /// As the hostile sender has it.
    mail: MailFile,
    /// Where it says that it writes next.
    tail: u64,
    model: Model,
    honest: Outboxes,
    honest_name: String,
    honest_sent: Vec<Vec<u8>>,
    sent: u64,
}

/// What the owner knows of the hostile lane.
#[derive(Default)]
struct Model {
    head: u64,
    sender: Option<String>,
    damaged: bool,
    /// Its bell was rung.
    rung: bool,
    /// Lanes that were given up.
    refused: u64,
}

fn open(inbox: &Inbox) -> MailFile {
    let path = format!("/proc/self/fd/{}", inbox.file().as_raw_fd());
    let mut options = std::fs::OpenOptions::new();
    let file = options.read(true).write(true).open(path);
    let file = file.expect("our own mailbox can be opened").into();
    MailFile::of_peer(file, Kind::Plain, ID).expect("it is one")
}

impl Game {
    fn new() -> Game {
        let inbox = Inbox::create(ID).expect("there is room for a mailbox");
        let mail = open(&inbox);
        assert_eq!(mail.lock_lane(LANE), Ok(true));
        let mut honest = Outboxes::default();
        honest.join(ID);
        Game {
            inbox,
            mail,
            tail: 0,
            model: Model::default(),
            honest,
            // No fuzzer comes to this by chance.
            honest_name: "h".repeat(MAX_NAME),
            honest_sent: Vec::new(),
            sent: 0,
        }
    }

    /// Raw bytes where the next frame belongs.
    fn append_bytes(&mut self, input: &mut Input) {
        let len = input.below(64);
        let bytes = input.take(len).to_vec();
        self.append(&bytes);
    }

    /// A frame that is mostly right, and may be long.
    fn append_frame(&mut self, input: &mut Input) {
        let long = usize::from(input.u16());
        let len = [
            long % 32,
            long,
            MAX_MESSAGE - 4 + long % 8,
            MAX_NAME - 2 + long % 4,
        ];
        let len = len[input.below(4)];
        let body = vec![b'a' + input.byte() % 26; len];
        let mut bytes = Vec::new();
        match std::str::from_utf8(&body) {
            Ok(name) if input.one_in(4) => frames::append(&mut bytes, Frame::Name(name)),
            _ => frames::append(&mut bytes, Frame::Message(&body)),
        }
        if input.one_in(8) {
            bytes.truncate(usize::from(input.u16()) % (bytes.len() + 1));
        }
        self.append(&bytes);
    }

    fn append(&mut self, bytes: &[u8]) {
        let longest = bytes.len().min(RING as usize);
        self.write(self.tail, &bytes[..longest]);
        self.tail = self.tail.wrapping_add(bytes.len() as u64);
        self.mail.tail(LANE).store(self.tail, Ordering::Release);
        self.ring_own();
    }

    fn write(&self, position: u64, bytes: &[u8]) {
        let written = self.mail.write(LANE, position, bytes);
        written.expect("there is memory for a ring");
    }

    fn write_anywhere(&mut self, input: &mut Input, strict: bool) {
        let lane = if strict { LANE } else { input.below(NEAR) };
        let position = position(input, self.model.head, self.tail);
        let len = input.below(16);
        let written = self.mail.write(lane, position, input.take(len));
        written.expect("there is memory for a ring");
    }

    fn set_position(&mut self, input: &mut Input, strict: bool) {
        let lane = if strict { LANE } else { input.below(NEAR) };
        let position = position(input, self.model.head, self.tail);
        if input.one_in(4) {
            // Only the sender itself believes that.
            self.mail.head(lane).store(position, Ordering::Release);
            return;
        }
        self.mail.tail(lane).store(position, Ordering::Release);
        if lane == LANE {
            self.tail = position;
        }
    }

    fn ring(&mut self, input: &mut Input) {
        // Those beyond the last lane are no lanes.
        let lane = match input.below(4) {
            0 => LANE,
            1 => input.below(NEAR),
            2 => self.mail.lanes() - 1,
            _ => 1023,
        };
        self.mail.ring_bell(lane);
        self.model.rung |= lane == LANE;
    }

    fn ring_own(&mut self) {
        self.mail.ring_bell(LANE);
        self.model.rung = true;
    }

    /// Words of the lanes' lines and of the bells, as nobody's program writes them.
    fn write_directory(&mut self, input: &mut Input) {
        let value = position(input, self.model.head, self.tail);
        match input.below(3) {
            0 => self.mail.ring_bell(input.below(256)),
            1 => self
                .mail
                .tail(input.below(NEAR))
                .store(value, Ordering::Release),
            _ => self
                .mail
                .head(input.below(NEAR))
                .store(value, Ordering::Release),
        }
    }

    fn honest_sends(&mut self, input: &mut Input) {
        let len = 1 + [input.below(32), usize::from(input.u16()) % MAX_MESSAGE][input.below(2)];
        let mut message = self.sent.to_le_bytes().repeat(len.div_ceil(8));
        message.truncate(len);
        let (inbox, name) = (&self.inbox, &self.honest_name);
        match self.honest.send(ID, name, &message, || Ok(open(inbox))) {
            Ok(()) => {
                self.sent += 1;
                self.honest_sent.push(message);
            }
            Err(error) => assert_eq!(error.status, Status::Busy, "{error}"),
        }
    }

    /// Takes at most `most` messages, then the others.
    fn receive(&mut self, most: usize, strict: bool) {
        let expected = self.model.read(&self.mail);
        let mut come = self.take(most);
        come.append(&mut self.take(usize::MAX));
        if !strict {
            return;
        }
        let (honest, hostile): (Vec<_>, Vec<_>) = come
            .into_iter()
            .partition(|message| *message.sender == *self.honest_name);
        let honest: Vec<_> = honest.into_iter().map(|message| message.bytes).collect();
        assert!(self.honest_sent == honest, "the honest sender's messages");
        self.honest_sent.clear();
        let hostile: Vec<_> = hostile
            .into_iter()
            .map(|message| (message.sender.to_string(), message.bytes))
            .collect();
        assert!(hostile == expected, "what is in the ring is something else");
        assert_eq!(self.inbox.refused(), self.model.refused);
    }

    fn take(&mut self, most: usize) -> Vec<Message> {
        let mut come = Vec::new();
        let inbox = &mut self.inbox;
        let ((), peak) = measured(|| inbox.receive(most, &mut come));
        assert!(come.len() <= most);
        let mut needed = come.len() * 4 * size_of::<Message>();
        for Message { sender, bytes } in &come {
            assert!((1..=MAX_MESSAGE).contains(&bytes.len()));
            assert!((1..=MAX_NAME).contains(&sender.len()) && !sender.contains('\0'));
            needed += bytes.len() + sender.len();
        }
        assert!(peak <= ROOM + needed, "{peak} bytes for {needed}");
        come
    }

    /// The lane is new when its sender has left it, and all was read or given up.
    fn leave_and_return(&mut self) {
        self.receive(usize::MAX, true);
        self.mail.unlock_lane(LANE);
        self.ring_own();
        // Damage may be found now; then lanes are looked at one by one.
        for _ in 0..4 {
            self.receive(usize::MAX, true);
        }
        let word = |word: &std::sync::atomic::AtomicU64| word.load(Ordering::Acquire);
        let ends = (word(self.mail.tail(LANE)), word(self.mail.head(LANE)));
        assert_eq!(ends, (0, 0), "the lane was not made new");
        assert_eq!(self.mail.lock_lane(LANE), Ok(true));
        self.tail = 0;
        let refused = self.model.refused;
        self.model = Model {
            refused,
            ..Model::default()
        };
    }
}

/// A position that is near to something, or far from everything.
fn position(input: &mut Input, head: u64, tail: u64) -> u64 {
    let near = u64::from(input.byte());
    match input.below(8) {
        0 => tail.wrapping_add(near),
        1 => tail.wrapping_sub(near),
        2 => head.wrapping_add(near),
        3 => head.wrapping_add(RING).wrapping_sub(128).wrapping_add(near),
        4 => GIVEN_UP.wrapping_sub(near),
        5 => 0,
        6 => u64::from(input.u16()) << (near % 48),
        _ => input.u64(),
    }
}

impl Model {
    /// The messages that come out of the lane when its owner looks at it now.
    fn read(&mut self, mail: &MailFile) -> Vec<(String, Vec<u8>)> {
        let mut messages = Vec::new();
        if !std::mem::take(&mut self.rung) || self.damaged {
            return messages;
        }
        let tail = mail.tail(LANE).load(Ordering::Acquire);
        self.damaged = self.read_up_to(tail, mail, &mut messages).is_none();
        self.refused += u64::from(self.damaged);
        self.head = tail;
        messages
    }

    /// `None` when there is damage, after the messages before it.
    fn read_up_to(
        &mut self,
        tail: u64,
        mail: &MailFile,
        messages: &mut Vec<(String, Vec<u8>)>,
    ) -> Option<()> {
        let waiting = Some(tail.wrapping_sub(self.head)).filter(|bytes| *bytes <= RING)?;
        let mut ring = Vec::new();
        let read = mail.read(LANE, self.head, waiting as usize, &mut ring);
        read.expect("a ring can be read");
        let mut rest = &ring[..];
        while !rest.is_empty() {
            let ([a, b, c, kind], behind) = rest.split_first_chunk()?;
            let len = usize::from(*a) | usize::from(*b) << 8 | usize::from(*c) << 16;
            let most = [0, MAX_NAME, MAX_MESSAGE].get(usize::from(*kind))?;
            let (body, behind) = behind.split_at_checked(len)?;
            if body.is_empty() || len > *most {
                return None;
            }
            rest = behind;
            if *kind == 2 {
                messages.push((self.sender.clone()?, body.to_vec()));
                continue;
            }
            let name = String::from_utf8(body.to_vec()).ok()?;
            self.sender = Some(name).filter(|name| !name.contains('\0'));
            self.sender.as_ref()?;
        }
        Some(())
    }
}
