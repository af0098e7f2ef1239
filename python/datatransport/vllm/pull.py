# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""The transport of vLLM's encoder cache: what vllm.distributed.ec_transfer.ec_connector.cpu.data.nixl has."""

import ctypes
import threading
from typing import Any, Optional, Union, cast

from datatransport import DataTransportError, Notif, Transport, Unavailable

from ._open import close_transport, logger, open_transport


class NixlDataTransport:
    """vLLM's class of this name, over this library.

    May be called from any thread. See the package for what differs from the original.
    """

    def __init__(
        self,
        agent_name: str,
        base_ptr: int,
        num_blocks: int,
        block_size_bytes: int,
        total_size_bytes: int,
        num_threads: int = 1,
    ) -> None:
        if num_blocks * block_size_bytes > total_size_bytes:
            raise ValueError(
                f"total_size_bytes is {total_size_bytes}, but {num_blocks} blocks of {block_size_bytes} bytes"
                f" need {num_blocks * block_size_bytes}"
            )
        memory = (ctypes.c_char * (num_blocks * block_size_bytes)).from_address(base_ptr)
        # name: what the peer was registered with. Together with the transport under the lock.
        self._peers: dict[str, tuple[bytes, bytes]] = {}
        self._lock = threading.Lock()
        # On their way from the library to who asks.
        self._notifs: list[Notif] = []
        try:
            self._transport: Optional[Transport] = open_transport(
                agent_name, memory, num_blocks, block_size_bytes
            )
        except Unavailable as reason:
            raise RuntimeError(f"ECCPUConnector requires NIXL: {reason}") from reason
        self._agent_metadata = self._transport.get_agent_metadata()
        self._mem_descriptor = self._transport.get_mem_descriptor()

    def get_agent_metadata(self) -> bytes:
        """What peers need to connect; with NIXL exactly NIXL's own blob."""
        return self._agent_metadata

    def get_mem_descriptor(self) -> bytes:
        """The blocks as msgspec encodes the list of (address, length, device)."""
        return self._mem_descriptor

    def add_remote_peer(self, metadata: bytes, mem_descriptor: bytes) -> str:
        """Registers a peer, and returns the name that it gave itself."""
        with self._lock:
            transport = self._open()
            for name, known in self._peers.items():
                # A new registration would end the reads of the old one, which the original leaves alone.
                if known == (metadata, mem_descriptor) and transport.peer_status(name).healthy:
                    break
            else:
                name = transport.add_remote_agent(metadata, mem_descriptor)
                self._peers[name] = bytes(metadata), bytes(mem_descriptor)
        # NIXL's bindings return bytes, whatever the original's annotation says, and so it is with that.
        return cast(str, name.encode())

    def remove_remote_peer(self, agent_name: str) -> None:
        """Forgets a peer. Reads of its blocks fail, when they have stopped touching memory."""
        name = _text(agent_name)
        with self._lock:
            if self._peers.pop(name, None) is None:
                logger.warning(
                    "EC: remove_remote_peer failed for %r: it is not registered", agent_name
                )
                return
            if self._transport is None:
                return
            try:
                self._transport.remove_remote_peer(name)
            except DataTransportError:
                logger.warning("EC: remove_remote_peer failed for %s", name, exc_info=True)

    def post_read(
        self,
        local_indices: list[int],
        agent_name: str,
        remote_indices: list[int],
        notif_msg: bytes,
    ) -> Any:
        """Starts a read. notif_msg goes to the peer when check_xfer_state has found it done."""
        if len(local_indices) != len(remote_indices):
            raise ValueError(
                f"EC: local/remote block count mismatch "
                f"({len(local_indices)} vs {len(remote_indices)})"
            )
        name = _text(agent_name)
        given = None
        try:
            with self._lock:
                transport = self._open()
                if name not in self._peers:
                    raise KeyError(agent_name)
                given = transport.post_read(name, local_indices, remote_indices, notif_msg)
            return given
        except BaseException:
            # Of a handler of a signal. The caller does not get it.
            if given is not None:
                self.release_xfer_handle(given)
            raise

    def get_new_notifs(self) -> dict[str, list[bytes]]:
        """What peers have sent since the last call, by the name of the sender."""
        mine: list[Notif] = []
        try:
            with self._lock:
                transport = self._open()
                while notifs := transport.get_new_notifs():
                    self._notifs += notifs
                mine, self._notifs = self._notifs, []
                found: dict[str, list[bytes]] = {}
                for notif in mine:
                    found.setdefault(notif.agent_name, []).append(notif.message)
            return found
        except BaseException:
            # What has come is for the next call.
            with self._lock:
                self._notifs[:0] = mine
            raise

    def check_xfer_state(self, handle: Any) -> str:
        """ "DONE" or "PROC"; raises why a read has failed, which touches no memory any more then."""
        state = self._open().check_xfer_state(handle)
        state.raise_for_status()
        return str(state)

    def release_xfer_handle(self, handle: Any) -> None:
        """Frees what post_read returned. One that is in progress is given up."""
        try:
            if self._transport is not None:
                self._transport.release_xfer(handle)
        except Exception:
            logger.warning("EC: release_xfer_handle failed", exc_info=True)

    def deregister(self) -> None:
        """Ends everything. Nothing of this process's touches the region afterwards. May be repeated."""
        with self._lock:
            transport, self._transport = self._transport, None
            self._peers.clear()
            if transport is not None:
                close_transport(transport)

    def _open(self) -> Transport:
        transport = self._transport
        if transport is None:
            raise RuntimeError("EC: the transport was deregistered")
        return transport


def _text(agent_name: Union[str, bytes]) -> str:
    # What is no UTF-8 is the name of nobody, and no other error than any such name.
    return (
        agent_name.decode(errors="surrogateescape") if isinstance(agent_name, bytes) else agent_name
    )
