# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""The transport of vLLM's P2P tier for KV blocks: what vllm.v1.kv_offload.tiering.p2p.data.nixl has."""

from __future__ import annotations

import ctypes
import hashlib
import json
import threading
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import Future
from typing import Any, Literal, NamedTuple, Optional

from datatransport import (
    Backend,
    Completion,
    DataTransportError,
    PeerLost,
    Status,
    Transport,
    Unavailable,
)
from datatransport.errors import status_name

from ._open import close_transport, logger, open_transport

CancelMode = Literal["immediate", "wait"]

# What the original says of a peer that is gone; logs and alerts know it.
_DISCONNECTED = "NIXL_ERR_REMOTE_DISCONNECT"
_MAX_CONSECUTIVE_TRANSFER_FAILURES = 3
_AT_ONCE = 256


class PollResult(NamedTuple):
    """What poll() reports: the ids of what has ended, well or not, and of a poll for one peer why that
    one is unusable, if it is."""

    done: Sequence[int]
    failed: Sequence[int]
    peer_fault: str | None = None


_EMPTY = PollResult(done=(), failed=())


class _Ended(NamedTuple):
    """What a poll() has yet to tell."""

    id: int
    peer: str
    done: bool


class NixlTransport:
    """vLLM's class of this name, over this library.

    May be called from any thread. See the package for what differs from the original.
    """

    def __init__(
        self,
        agent_name: str,
        view: memoryview,
        config_fields: dict | None = None,  # type: ignore[type-arg] # as in the original
        backends: list[str] | None = None,
        num_threads: int = 4,
    ) -> None:
        assert view.shape is not None
        # Refuses what is read-only or has gaps.
        self._base_addr = ctypes.addressof(ctypes.c_char.from_buffer(view))
        self._num_blocks = view.shape[0]
        self._block_len = view.shape[1]
        self._config_fingerprint = self._compute_fingerprint(config_fields)
        self._agent_name = agent_name
        # Held while the library is called: an id must be in the table before a poll can report it.
        self._lock = threading.Lock()
        self._next_id = 0
        # The caller's id: (peer, the library's id).
        self._inflight: dict[int, tuple[str, int]] = {}
        # On their way from the library to who polls.
        self._reported: list[Completion] = []
        self._ended: list[_Ended] = []
        self._peers: set[str] = set()
        # peer: failures since its last success.
        self._peer_strikes: dict[str, int] = {}
        # peer: what poll() says of it until it is removed.
        self._peer_faults: dict[str, str] = {}
        self._transport: Optional[Transport] = None
        backend, plugin = _what_moves(backends)
        try:
            self._transport = open_transport(
                agent_name, view, self._num_blocks, self._block_len, backend, plugin
            )
        except Unavailable as reason:
            # As without the nixl package: `available` tells.
            logger.warning("NixlTransport %s: NIXL is not available: %s", agent_name, reason)

    @property
    def available(self) -> bool:
        """False where NIXL cannot be loaded, and after close()."""
        return self._transport is not None

    @property
    def base_addr(self) -> int:
        """Where block 0 lies: what peers need for add_remote_peer()."""
        return self._base_addr

    @property
    def num_blocks(self) -> int:
        """How many blocks there are here."""
        return self._num_blocks

    @property
    def block_len(self) -> int:
        """Bytes of one block."""
        return self._block_len

    @property
    def config_fingerprint(self) -> str:
        """Content hash of the model configuration; "" for none, which fits any."""
        return self._config_fingerprint

    @staticmethod
    def _compute_fingerprint(config_fields: Mapping[Any, Any] | None) -> str:
        # Not the library's, which is given a text: here keys may be other than text, and are sorted as such.
        if not config_fields:
            return ""
        canonical = json.dumps(config_fields, sort_keys=True, separators=(",", ":"))
        return hashlib.sha256(canonical.encode()).hexdigest()[:16]

    def get_agent_metadata(self) -> bytes:
        """What peers need to connect; with NIXL exactly NIXL's own blob."""
        assert self._transport is not None
        return self._transport.get_agent_metadata()

    def add_remote_peer(
        self,
        peer_id: str,
        agent_metadata: bytes,
        base_addr: int,
        num_blocks: int,
        block_len: int,
    ) -> None:
        """Registers a peer, or registers it anew."""
        with self._lock:
            if self._transport is None:
                raise RuntimeError(
                    f"NixlTransport {self._agent_name}: NIXL is not available, or the transport is closed"
                )
            self._transport.add_remote_peer(
                peer_id, agent_metadata, base_addr, num_blocks, block_len
            )
            self._peers.add(peer_id)

    def add_remote_peer_async(
        self,
        peer_id: str,
        agent_metadata: bytes,
        base_addr: int,
        num_blocks: int,
        block_len: int,
    ) -> Future[None]:
        """As add_remote_peer. The future is done already: the library's registration never waits for a peer,
        and costs the same for any number of blocks."""
        future: Future[None] = Future()
        try:
            self.add_remote_peer(peer_id, agent_metadata, base_addr, num_blocks, block_len)
        except Exception as error:
            future.set_exception(error)
        else:
            future.set_result(None)
        return future

    def remove_remote_peer(self, peer_id: str) -> None:
        """Forgets a peer, its strikes and its fault. What was in flight to it surfaces as failed, when it has
        stopped touching memory."""
        with self._lock:
            self._peer_strikes.pop(peer_id, None)
            self._peer_faults.pop(peer_id, None)
            if peer_id not in self._peers or self._transport is None:
                return
            self._peers.discard(peer_id)
            try:
                self._transport.remove_remote_peer(peer_id)
            except DataTransportError as error:
                logger.warning(
                    "NixlTransport %s: removing peer=%s failed: %s",
                    self._agent_name,
                    peer_id,
                    error,
                )

    def write_blocks(
        self,
        peer_id: str,
        local_idxs: list[int],
        remote_idxs: list[int],
    ) -> int | None:
        """Starts to copy local blocks to the peer's. Returns the transfer's id, or None if it was refused."""
        given = None
        try:
            with self._lock:
                given = self._begin(peer_id, local_idxs, remote_idxs)
            return given
        except BaseException:
            # Of a handler of a signal. The caller does not get the id.
            if given is not None:
                self.cancel([given])
            raise

    def _begin(self, peer_id: str, local_idxs: list[int], remote_idxs: list[int]) -> int | None:
        if self._transport is None or peer_id not in self._peers:
            logger.warning(
                "NixlTransport %s: write_blocks to peer=%s, which is not registered (known peers=%s)",
                self._agent_name,
                peer_id,
                sorted(self._peers),
            )
            return None
        transfer_id = self._next_id
        try:
            xfer = self._transport.write_blocks(
                peer_id, local_idxs, remote_idxs, user_data=transfer_id
            )
        except DataTransportError as error:
            logger.warning(
                "NixlTransport %s: write_blocks failed for peer=%s: %s",
                self._agent_name,
                peer_id,
                error,
            )
            # A lost peer the library knows itself, and the next poll tells.
            if not isinstance(error, PeerLost):
                self._strike(peer_id, f"{type(error).__name__}: {error}")
            return None
        self._next_id += 1
        self._inflight[transfer_id] = peer_id, xfer
        return transfer_id

    def poll(self, peer_id: str | None = None) -> PollResult:
        """Drives all work and reports what has ended: of peer_id, or of every peer."""
        mine: list[_Ended] = []
        try:
            with self._lock:
                if self._transport is None:
                    return _EMPTY
                try:
                    self._collect(self._transport, peer_id)
                    if peer_id in self._peers and peer_id not in self._peer_faults:
                        peer = self._transport.peer_status(peer_id)
                        if not peer.healthy:
                            self._set_peer_fault(peer_id, _cause(peer.status), peer.text)
                except DataTransportError as error:
                    # It may not be raised. What is in flight stays so: nobody knows what it still does.
                    for owner in {peer_id} & self._peers if peer_id is not None else self._peers:
                        self._set_peer_fault(owner, f"poll raised {type(error).__name__}: {error}")
                fault = None if peer_id is None else self._peer_faults.get(peer_id)
                mine, self._ended = self._of(peer_id)
                if not mine and fault is None:
                    return _EMPTY
                done = [one.id for one in mine if one.done]
                failed = [one.id for one in mine if not one.done]
                result = PollResult(done or (), failed or (), fault)
            return result
        except BaseException:
            # Of a handler of a signal. The next poll tells it.
            with self._lock:
                self._ended[:0] = mine
            raise

    def _collect(self, transport: Transport, peer_id: str | None) -> None:
        """Brings what the library reports into _ended, each once, wherever a handler of a signal raises: from
        list to list it goes in steps without a call."""
        failures = []
        while True:
            batch = transport.poll(peer_id, _AT_ONCE)
            self._reported += batch
            while self._reported:
                completion = self._reported[0]
                known = self._inflight.get(completion.user_data)
                if known is None:
                    # Given up by a cancel() that the library had no memory for.
                    del self._reported[0]
                    continue
                owner = known[0]
                if completion.ok:
                    # The order within a batch is not known: a success counts before its failures.
                    self._peer_strikes.pop(owner, None)
                # Of a peer that is lost or was removed it says nothing that is not known.
                elif completion.status not in (Status.PEER_LOST, Status.CANCELLED):
                    failures.append((owner, completion.status))
                ended = [_Ended(completion.user_data, owner, completion.ok)]
                self._ended += ended
                del self._inflight[completion.user_data], self._reported[0]
            if len(batch) < _AT_ONCE:
                break
        for owner, status in failures:
            self._strike(owner, f"state {status_name(status)}")

    def _of(self, peer_id: str | None) -> tuple[list[_Ended], list[_Ended]]:
        """Of _ended what is a peer's, and the rest."""
        if peer_id is None:
            return self._ended, []
        mine = [one for one in self._ended if one.peer == peer_id]
        return mine, [one for one in self._ended if one.peer != peer_id]

    def cancel(
        self,
        transfer_ids: Iterable[int],
        mode: CancelMode = "immediate",
    ) -> list[int]:
        """Cancels transfers; ids that are not in flight are ignored.

        "immediate" forgets all of them and returns []. "wait" forgets those that have stopped touching memory,
        and returns the others, which surface in poll().
        """
        with self._lock:
            ids = list(transfer_ids)
            if self._ended:
                # What an exception has kept from a poll() has stopped, and is not told any more.
                self._ended = [one for one in self._ended if one.id not in ids]
            known = [tid for tid in ids if tid in self._inflight]
            if self._transport is None or not known:
                return []
            xfers = {self._inflight[tid][1]: tid for tid in known}
            wait = mode != "immediate"
            try:
                if wait:
                    # Who only cancels again and again, and never polls, must come to an end, too.
                    self._transport.poll(limit=0)
                still = self._transport.cancel(xfers, wait=wait)
            except DataTransportError as error:
                logger.warning("NixlTransport %s: cancel failed: %s", self._agent_name, error)
                still = list(xfers) if wait else []
            running = {xfers[xfer] for xfer in still}
            for tid in xfers.values():
                if tid not in running:
                    del self._inflight[tid]
            return [tid for tid in known if tid in running]

    def close(self) -> None:
        """Ends everything. Nothing of this process's touches the region afterwards. May be repeated."""
        with self._lock:
            transport, self._transport = self._transport, None
            self._inflight.clear()
            self._reported.clear()
            self._ended.clear()
            self._peers.clear()
            self._peer_strikes.clear()
            self._peer_faults.clear()
            if transport is not None:
                close_transport(transport)

    def _strike(self, peer_id: str, cause: str) -> None:
        # One that surfaces after its peer was removed is not the next registration's.
        if peer_id not in self._peers:
            return
        strikes = self._peer_strikes.get(peer_id, 0) + 1
        self._peer_strikes[peer_id] = strikes
        if strikes >= _MAX_CONSECUTIVE_TRANSFER_FAILURES:
            self._set_peer_fault(
                peer_id, f"{strikes} consecutive transfer failures (last: {cause})"
            )

    def _set_peer_fault(self, peer_id: str, cause: str, more: str = "") -> None:
        if peer_id in self._peer_faults or peer_id not in self._peers:
            return
        self._peer_faults[peer_id] = cause
        logger.warning(
            "NixlTransport %s: registration for peer=%s judged unusable: %s%s",
            self._agent_name,
            peer_id,
            cause,
            more and f" ({more})",
        )


def _cause(status: Any) -> str:
    return _DISCONNECTED if status == Status.PEER_LOST else status_name(status)


def _what_moves(backends: list[str] | None) -> tuple[Optional[Backend], Optional[str]]:
    """The library's backend and NIXL's plugin for vLLM's list of plugins."""
    names = list(backends) if backends else ["UCX"]
    if len(names) > 1:
        raise ValueError(f"backends is {names}, but one moves all blocks here: name one")
    if names[0].upper() == "LOCAL":
        return Backend.LOCAL, None
    return None, names[0]
