//! Messages: they outlive their sender, and wait for a reader who may come late or never.
//!
//! Every transport owns a mailbox, a memory file that its peers open as they open its control page:
//! only processes that may look into the owner can. (A socket would have to be in a file system, or in
//! a name space that every user of the host reaches; and it holds few messages while nobody reads.)
//! The mailbox has lanes. A sender takes one for as long as it likes, by the lock on its byte, and
//! writes messages into the lane's ring. A message is sent when the sender's position behind it is in
//! the directory, and needs its sender no more. The owner reads when it is asked to; it looks only at
//! lanes whose bell was rung.
//!
//! A sender trusts what it wrote itself, and the owner what it read itself. Whatever else they find,
//! written by a program that went wrong or means harm, is checked, and changes which messages come out
//! of that lane, but nothing else: a lane that holds nonsense is given up and counted.
//!
//! - `frames`: what is in a ring.
//! - `file`: the mailbox as a file.
//! - `inbox` and `outbox`: its two sides.

mod file;
mod frames;
#[cfg(any(test, fuzzing))]
pub(super) mod fuzz;
mod inbox;
mod outbox;

pub(super) use file::MailFile;
pub(super) use inbox::Inbox;
pub(super) use outbox::Outboxes;

#[cfg(test)]
mod tests;
