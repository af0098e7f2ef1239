//! Pull: reads that belong to a handle, messages, and agents that are known by what they say of
//! themselves.

use parking_lot::MutexGuard;

use super::inner::{GivenUp, lacks_room};
use super::{CancelMode, Transport, XferId, is_name};
use crate::backend::{Direction, Message, check_message};
use crate::descriptor;
use crate::error::{Error, Quoted, Result, Status, fail};
use crate::handshake::{self, Facts};

/// Where a posted read stands.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum ReadState {
    /// It goes on.
    Running,
    /// It has ended, and will never be said to have ended otherwise.
    Ended(std::result::Result<(), Status>),
}

impl Transport {
    /// Bytes of [`mem_descriptor`](Self::mem_descriptor).
    pub fn mem_descriptor_len(&self) -> Result<usize> {
        self.check()?;
        descriptor::encoded_len(&self.region)
    }

    /// The local blocks, for peers that read them.
    pub fn mem_descriptor(&self) -> Result<Vec<u8>> {
        self.check()?;
        descriptor::encode(&self.region)
    }

    /// The name under which [`add_agent`](Self::add_agent) would register whom `metadata` describes.
    pub fn name_in(&self, metadata: &[u8]) -> Result<String> {
        let name = self.enter()?.backend.agent_name(metadata)?;
        if !is_name(&name) {
            fail!(
                InvalidArg,
                "the agent metadata names {}, which is no name: it has at least one byte and no NUL",
                Quoted(&name)
            );
        }
        Ok(name)
    }

    /// Registers the agent of `metadata` as a peer under its own name, with the blocks of
    /// `mem_descriptor`. Both are untrusted.
    pub fn add_agent(&self, name: &str, metadata: &[u8], mem_descriptor: &[u8]) -> Result<()> {
        self.check()?;
        let of_agent = |error: Error| error.context(format_args!("agent {}", Quoted(name)));
        let blocks =
            descriptor::parse(mem_descriptor, self.region.block_len()).map_err(of_agent)?;
        self.connect(name, metadata, blocks)
    }

    /// Starts a read that is asked for by its id, and released. When its bytes have arrived, `message`
    /// goes to the peer, unless it is empty.
    pub fn post_read(
        &self,
        agent: &str,
        local_idxs: &[u32],
        remote_idxs: &[u32],
        message: &[u8],
    ) -> Result<XferId> {
        self.check()?;
        if !message.is_empty() {
            check_message(message)?;
        }
        let lists = (local_idxs, remote_idxs);
        self.start(Direction::Read, agent, lists, 0, Some(message))
    }

    /// Drives progress, then says where a posted read stands.
    pub fn read_state(&self, id: XferId) -> Result<ReadState> {
        let mut inner = self.enter()?;
        self.drive(&mut inner);
        let state = match inner.ledger.held(id) {
            None => return Err(no_read(id)),
            Some(None) => ReadState::Running,
            Some(Some(result)) => ReadState::Ended(result),
        };
        MutexGuard::unlock_fair(inner);
        Ok(state)
    }

    /// Forgets a posted read. One that runs is given up.
    pub fn release_read(&self, id: XferId) -> Result<()> {
        let mut inner = self.enter()?;
        if inner.ledger.held(id).is_none() {
            return Err(no_read(id));
        }
        let given_up = inner.give_up(id, CancelMode::Immediate);
        debug_assert_eq!(given_up, GivenUp::Yes);
        Ok(())
    }

    /// Sends a message that goes with no read.
    pub fn send(&self, agent: &str, message: &[u8]) -> Result<()> {
        self.check()?;
        check_message(message)?;
        let mut inner = self.enter()?;
        let conn = inner.peers.usable(agent)?.conn;
        if inner.outgoing.first(conn).is_some() {
            fail!(
                Busy,
                "messages of reads wait for room at agent {}, and none overtakes them: poll, then try again",
                Quoted(agent)
            );
        }
        let sent = inner.backend.send(conn, message);
        match &sent {
            Ok(()) => inner.messages.sent += 1,
            Err(error) if error.status == Status::PeerLost => inner.judge(conn, &sent),
            Err(error) => inner.no_room += u64::from(lacks_room(error)),
        }
        sent.map_err(|error| error.context(format_args!("agent {}", Quoted(agent))))
    }

    /// Drives progress, then hands at most `cap` messages that have come to `take`. One that it
    /// does not take stays the next one.
    pub fn receive(&self, cap: usize, take: &mut dyn FnMut(&Message) -> bool) -> Result<()> {
        let mut inner = self.enter()?;
        self.drive(&mut inner);
        for count in 0..cap {
            let Some(message) = inner.next_message(cap - count) else {
                break;
            };
            if !take(&message) {
                inner.inbox.push_front(message);
                break;
            }
            inner.messages.received += 1;
        }
        MutexGuard::unlock_fair(inner);
        Ok(())
    }

    /// All that a peer must know, in one piece.
    pub fn export_handshake(&self) -> Result<Vec<u8>> {
        Ok(handshake::export(&self.facts()?))
    }

    /// Checks what another transport has exported, and registers it as a peer.
    pub fn import_handshake(&self, peer_id: &str, blob: &[u8]) -> Result<()> {
        self.check()?;
        let of_peer = |error: Error| error.context(format_args!("peer {}", Quoted(peer_id)));
        let theirs = handshake::parse(blob).map_err(of_peer)?;
        handshake::check(&self.facts()?, &theirs).map_err(of_peer)?;
        self.connect(peer_id, &theirs.metadata, theirs.region.into())
    }

    fn facts(&self) -> Result<Facts> {
        Ok(Facts {
            backend: self.kind,
            fingerprint: self.fingerprint.clone(),
            region: self.region,
            metadata: self.agent_metadata()?,
        })
    }
}

fn no_read(id: XferId) -> Error {
    Error::new(
        Status::NotFound,
        format!(
            "no posted read has the id {id}: it was never given out, or was released, or is a transfer that dt_poll reports"
        ),
    )
}
