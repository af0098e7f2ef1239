//! One connection to one peer: who it is, its gate, and the way to its memory.

use std::os::fd::BorrowedFd;
use std::sync::Arc;

use super::copy::Memory;
use super::foreign::open_memory;
use super::gate::Slot;
use super::identity::{Host, ProcessId};
use super::mail::MailFile;
use super::metadata::{FileRef, Metadata};
use super::program::Program;
use super::reach::{Reach, check_range, same_process};
use super::registry;
use crate::backend::Direction;
use crate::error::{Quoted, Result, Status, fail};
use crate::extents::Cursor;
use crate::layout::Layout;
use crate::log::log;

/// The control page, in messages.
const CONTROL: &str = "the control page";
/// The mailbox, in messages.
const MAIL: &str = "the mailbox";

/// A peer whose memory can be reached.
#[derive(Debug)]
pub(super) struct Peer {
    slot: Slot,
    reach: Reach,
    /// `None` for a transport of this process.
    program: Option<Arc<Program>>,
    name: String,
    incarnation: u128,
    /// Where its mailbox is: that is opened when there is something to send.
    mail: (u32, FileRef),
}

impl Peer {
    /// Finds the peer that `metadata`, with this digest, describes, and a way to `remote`, blocks in
    /// its region.
    pub(super) fn connect(
        metadata: &Metadata,
        digest: u128,
        remote: &Layout,
        host: &Host,
        own: ProcessId,
    ) -> Result<Peer> {
        check_host(metadata, host)?;
        check_range(&metadata.region, remote)?;
        // An address of a peer is used as one of ours only when both agree: the process is this
        // one, and it knows the transport. (Another copy of the library has its own registry.)
        let (peer, why) = match registry::find(metadata.incarnation) {
            Some(entry) if metadata.process == own => {
                let reach = same_process(&entry, remote)?;
                let (control, _) = open_memory(own.pid(), entry.control, CONTROL)?;
                let slot = Slot::claim(control, metadata.incarnation, digest, own)?;
                let name = format!("{} (this process)", Quoted(&metadata.agent_name));
                let peer = Peer {
                    slot,
                    reach,
                    program: None,
                    name,
                    incarnation: metadata.incarnation,
                    mail: (own.pid(), metadata.mail),
                };
                (peer, "the peer is a transport of this process".to_owned())
            }
            _ => Peer::connect_process(metadata, digest, remote, own)?,
        };
        peer.check()?;
        log!(Info, "LOCAL peer {}: {why}", peer.name);
        Ok(peer)
    }

    fn connect_process(
        metadata: &Metadata,
        digest: u128,
        remote: &Layout,
        own: ProcessId,
    ) -> Result<(Peer, String)> {
        // Before the control page: when that is found, it is this program that it belongs to.
        let program = Program::of(metadata.process)?;
        let pid = program.pid();
        let (control, _) = open_memory(pid, metadata.control, CONTROL)?;
        let slot = Slot::claim(control, metadata.incarnation, digest, own)?;
        // The probe looks at the peer's memory: it needs a pass as any copy does.
        let Some(pass) = slot.enter() else {
            fail!(PeerLost, "the peer has closed its transport")
        };
        let opened = Reach::open(metadata, remote);
        drop(pass);
        if !slot.is_open() || program.has_ended() {
            fail!(PeerLost, "the peer has closed its transport meanwhile")
        }
        let (reach, why) = opened?;
        let name = format!("{} (process {pid})", Quoted(&metadata.agent_name));
        Ok((
            Peer {
                slot,
                reach,
                program: Some(Arc::new(program)),
                name,
                incarnation: metadata.incarnation,
                mail: (pid, metadata.mail),
            },
            why,
        ))
    }

    /// Name and process, for messages.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// The random number of the peer's transport.
    pub(super) fn incarnation(&self) -> u128 {
        self.incarnation
    }

    /// Opens the peer's mailbox.
    pub(super) fn open_mail(&self) -> Result<MailFile> {
        let (pid, file) = self.mail;
        let (file, kind) = open_memory(pid, file, MAIL)?;
        let mail = MailFile::of_peer(file, kind, self.incarnation)?;
        Ok(mail.read_by(self.program.clone()))
    }

    /// What becomes readable when the peer's process dies.
    pub(super) fn pidfd(&self) -> Option<BorrowedFd<'_>> {
        self.program.as_ref().map(|program| program.pidfd())
    }

    /// `PeerLost` when the peer has closed its transport. Costs nearly nothing.
    pub(super) fn check_gate(&self) -> Result<()> {
        if !self.slot.is_open() {
            fail!(PeerLost, "the peer has closed its transport");
        }
        Ok(())
    }

    /// `PeerLost` when the peer's program has ended, even if its process goes on with another one.
    pub(super) fn check_program(&self) -> Result<()> {
        if let Some(program) = &self.program {
            // The lock lives as long as the space, which has the page mapped, or longer.
            let same = program
                .has_its_memory()
                .unwrap_or_else(|| self.slot.is_owned());
            if !same {
                fail!(
                    PeerLost,
                    "process {} does not have its transport any more: it ended or started another program",
                    program.pid()
                );
            }
        }
        Ok(())
    }

    /// True when a step could go to another program of the peer's process, so that
    /// [`check_program`](Peer::check_program) is due before each.
    pub(super) fn follows_process(&self) -> bool {
        self.reach.follows_process()
    }

    /// `PeerLost` when the peer is lost in any way.
    pub(super) fn check(&self) -> Result<()> {
        if let Some(program) = &self.program
            && program.has_ended()
        {
            fail!(PeerLost, "process {} is gone", program.pid());
        }
        self.check_gate()?;
        self.check_program()
    }

    /// Moves a part of a transfer. `PeerLost` means that the peer is lost; other failures concern
    /// the transfer alone.
    pub(super) fn step(
        &self,
        local: Memory,
        direction: Direction,
        cursor: &mut Cursor,
    ) -> Result<()> {
        let Some(pass) = self.slot.enter() else {
            fail!(PeerLost, "the peer has closed its transport")
        };
        let result = self.reach.step(local, direction, cursor);
        drop(pass);
        // Stopped for long inside, this process may have copied from memory, or to memory, that its
        // owner has taken back by force.
        self.check_gate()?;
        match result {
            // The end of a process shows in many ways; the most telling reason is the one to give.
            Err(error) if error.status != Status::PeerLost => {
                Err(self.check().err().unwrap_or(error))
            }
            result => result,
        }
    }
}

fn check_host(metadata: &Metadata, host: &Host) -> Result<()> {
    if metadata.host.boot_id != host.boot_id {
        fail!(
            Incompatible,
            "the peer runs on another host, or before a reboot: LOCAL reaches processes of one host only"
        );
    }
    if metadata.host.pid_ns != host.pid_ns {
        fail!(
            Incompatible,
            "the peer runs in another pid namespace ({} there, {} here): run both containers with one pid namespace",
            metadata.host.pid_ns,
            host.pid_ns
        );
    }
    Ok(())
}
