//! The owner's side of a mailbox.

use std::collections::{BTreeMap, BTreeSet};
use std::os::fd::BorrowedFd;
use std::sync::Arc;
use std::sync::atomic::Ordering;

use super::file::MailFile;
use super::frames::{self, Checked, Damaged, Frame, GIVEN_UP, LONGEST};
use crate::backend::Message;
use crate::error::Result;
use crate::log::log;

/// How much is read at once; more only for a message that is longer.
const CHUNK: u64 = 16 << 10;
/// Messages that one sender has read before it is the next one's turn.
const TURN: usize = 64;

/// A mailbox of this transport.
#[derive(Debug)]
pub(in crate::backend::local) struct Inbox {
    mail: MailFile,
    /// How far the lanes were read. Those that are not here begin anew.
    readers: BTreeMap<usize, Reader>,
    /// Lanes that may hold something.
    waiting: BTreeSet<usize>,
    /// The lane whose turn it is to be read.
    turn: usize,
    /// The lane that is looked at next for whether its sender is gone.
    swept: usize,
    refused: u64,
    /// Reused by every read.
    buffer: Vec<u8>,
}

#[derive(Debug, Default)]
struct Reader {
    /// Senders can change the one in the directory.
    head: u64,
    sender: Option<Arc<str>>,
    /// The lane is read no more until its sender has left it.
    damaged: bool,
}

/// Why reading a lane ended.
enum End {
    Empty,
    Turn,
    Damaged,
    Failed(std::io::Error),
}

impl Inbox {
    /// An empty mailbox for the transport `incarnation`.
    pub(in crate::backend::local) fn create(incarnation: u128) -> Result<Inbox> {
        Ok(Inbox {
            mail: MailFile::create(incarnation)?,
            readers: BTreeMap::new(),
            waiting: BTreeSet::new(),
            turn: 0,
            swept: 0,
            refused: 0,
            buffer: Vec::new(),
        })
    }

    /// What senders open.
    pub(in crate::backend::local) fn file(&self) -> BorrowedFd<'_> {
        self.mail.file()
    }

    /// Lanes that were given up because of what they held.
    pub(in crate::backend::local) fn refused(&self) -> u64 {
        self.refused
    }

    /// Appends up to `most` messages, fairly between senders.
    pub(in crate::backend::local) fn receive(&mut self, most: usize, messages: &mut Vec<Message>) {
        let full = messages.len().saturating_add(most);
        self.mail.answer_bells(|lane| {
            self.waiting.insert(lane);
        });
        self.sweep();
        while messages.len() < full {
            let next = self.waiting.range(self.turn..).next();
            let Some(lane) = next.or(self.waiting.first()).copied() else {
                return;
            };
            self.turn = lane + 1;
            match self.read(lane, TURN.min(full - messages.len()), messages) {
                End::Turn => {}
                End::Empty => {
                    self.waiting.remove(&lane);
                    self.release(lane);
                }
                End::Damaged => {
                    self.give_up(lane);
                }
                End::Failed(error) => {
                    // Out of memory, perhaps: it stays where it is until the next call.
                    log!(Debug, "reading the mailbox: {error}");
                    return;
                }
            }
        }
    }

    /// Reads up to `most` messages of a lane.
    fn read(&mut self, lane: usize, most: usize, messages: &mut Vec<Message>) -> End {
        let tail = self.mail.tail(lane).load(Ordering::Acquire);
        let reader = self.readers.entry(lane).or_default();
        if reader.damaged {
            return End::Empty;
        }
        let full = messages.len() + most;
        while messages.len() < full {
            let waiting = match frames::waiting(tail, reader.head) {
                Ok(0) => return End::Empty,
                Ok(waiting) => waiting,
                Err(Damaged) => return End::Damaged,
            };
            let mut bytes = waiting.min(CHUNK);
            let taken = loop {
                let read = self
                    .mail
                    .read(lane, reader.head, bytes as usize, &mut self.buffer);
                if let Err(error) = read {
                    return End::Failed(error);
                }
                match reader.take(&self.buffer, full, messages) {
                    Ok(0) if bytes < waiting.min(LONGEST) => bytes = waiting.min(LONGEST),
                    // All that there is, and no whole frame in it.
                    Ok(0) | Err(Damaged) => return End::Damaged,
                    Ok(taken) => break taken,
                }
            };
            reader.head += taken as u64;
            self.mail.head(lane).store(reader.head, Ordering::Release);
        }
        End::Turn
    }

    /// Reads a lane no more, and lets its sender see that.
    fn give_up(&mut self, lane: usize) {
        // Who means harm could do this over and over.
        if self.refused == 0 {
            log!(
                Warn,
                "messages are lost: a sender's lane of the mailbox is damaged"
            );
        }
        self.refused += 1;
        self.waiting.remove(&lane);
        self.readers.entry(lane).or_default().damaged = true;
        self.mail.head(lane).store(GIVEN_UP, Ordering::Release);
    }

    /// Looks at one lane, in turn, whose sender may have been killed, which rings no bell.
    fn sweep(&mut self) {
        let next = self.readers.range(self.swept..).next();
        self.swept = next.map_or(0, |(lane, _)| lane + 1);
        if let Some(lane) = next.map(|(lane, _)| *lane) {
            self.release(lane);
        }
    }

    /// Makes a lane new that is empty or damaged, if its sender has left it: that gives back its
    /// memory.
    fn release(&mut self, lane: usize) {
        // It is also tried when the sender is still there, which is nothing to speak of.
        if !self.mail.lock_lane(lane).unwrap_or(false) {
            return;
        }
        let (head, damaged) = self
            .readers
            .get(&lane)
            .map_or((0, false), |reader| (reader.head, reader.damaged));
        // The next sender may have come and gone in between.
        if damaged || self.mail.tail(lane).load(Ordering::Acquire) == head {
            self.mail.empty_lane(lane);
            self.readers.remove(&lane);
        }
        self.mail.unlock_lane(lane);
    }
}

impl Drop for Inbox {
    fn drop(&mut self) {
        // Closing the file would not be enough while a forked child has it.
        if self.mail.is_here() {
            self.mail.give_up();
        }
    }
}

impl Reader {
    /// Takes whole frames off `bytes` until there are `full` messages; how many bytes they were.
    fn take(&mut self, bytes: &[u8], full: usize, messages: &mut Vec<Message>) -> Checked<usize> {
        let mut rest = bytes;
        while messages.len() < full {
            match (frames::take(&mut rest)?, &self.sender) {
                (None, _) => break,
                (Some(Frame::Name(name)), _) => self.sender = Some(name.into()),
                (Some(Frame::Message(message)), Some(sender)) => messages.push(Message {
                    sender: Arc::clone(sender),
                    bytes: message.to_vec(),
                }),
                (Some(Frame::Message(_)), None) => return Err(Damaged),
            }
        }
        Ok(bytes.len() - rest.len())
    }
}
