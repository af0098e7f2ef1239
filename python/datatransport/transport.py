# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""One end of the data plane."""

from __future__ import annotations

import collections
import ctypes
import functools
import os
from types import TracebackType
from typing import Any, Iterable, Mapping, NoReturn, Optional, Union

from . import _abi, _convert, _create
from ._convert import Buffer, Indexes
from ._handle import Handle
from ._kept import Kept
from ._library import lib
from .errors import (
    Closed,
    Forked,
    InternalError,
    InvalidArgument,
    NotFound,
    OutOfRange,
    Status,
    Timeout,
    check,
    error,
    last_error,
    outcome,
    status_of,
)
from .region import Region, memory_file
from .results import Backend, Completion, Notif, PeerStatus, Stats, XferState

# Longest name of an agent, and its NUL.
_NAME_ROOM = 1001
_MESSAGE_MAX = 65536
# Of one call; what does not fit stays for the next.
_MOST_AT_ONCE = 4096


class Transport:
    """Moves blocks between a region of memory and those of peers. See dt.h for what is promised.

    memory is a Region, or any buffer that can be written: a NumPy array, a memoryview, a bytearray, an
    mmap. It is cut into blocks of block_len bytes, one after the other. The transport keeps the memory
    until it is closed.

    Any method may be called from any thread. Times are in seconds. A name of a peer is the one that
    this side gave to it, or that add_remote_agent() returned.
    """

    def __init__(
        self,
        memory: Union[Region, Buffer],
        block_len: int,
        *,
        num_blocks: Optional[int] = None,
        backend: Union[Backend, str] = Backend.AUTO,
        agent_name: Optional[str] = None,
        config: Union[str, Mapping[str, Any], None] = None,
        nixl_lib_dir: Union[str, os.PathLike[str], None] = None,
        nixl_plugin: Optional[str] = None,
        nixl_num_threads: int = 0,
        progress_thread: bool = False,
        region_fd: Optional[int] = None,
        region_offset: int = 0,
        poll_budget_us: int = 0,
    ) -> None:
        """num_blocks: as many as there are in memory, without a rest, if it is None.

        config: the configuration of the model, of which a fingerprint is made. region_fd and
        region_offset: the descriptor that the memory is a shared mapping of, and where; a Region and
        what lies inside one need neither. nixl_lib_dir: without it and without the environment variable
        DT_NIXL_LIB_DIR the NIXL that pip has installed is used. The rest is as in dt_options.
        """
        view, address = _create.bytes_of(memory)
        block_len = _convert.unsigned("block_len", block_len)
        blocks = _create.count_blocks(view.nbytes, block_len, num_blocks)
        if region_fd is not None:
            file: Optional[tuple[int, int]] = (region_fd, region_offset)
        elif _convert.unsigned("region_offset", region_offset):
            raise InvalidArgument(
                "region_offset says where in region_fd the memory begins, but there is no region_fd"
            )
        else:
            file = memory_file(address, blocks * block_len)
        options = _create.options(
            backend=backend,
            agent_name=agent_name,
            config=config,
            nixl_lib_dir=nixl_lib_dir,
            nixl_plugin=nixl_plugin,
            nixl_num_threads=nixl_num_threads,
            progress_thread=progress_thread,
            file=file,
            poll_budget_us=poll_budget_us,
        )
        handle = Handle(view)
        out = ctypes.byref(handle.out)
        check(lib.dt_create(address, blocks, block_len, ctypes.byref(options), out))
        self._handle: Optional[Handle] = handle
        self._view: Optional[memoryview] = view
        self._kept_completions, self._kept_notifs = Kept(), Kept()
        # Ids of submissions that have raised nevertheless: to be cancelled.
        self._orphans: collections.deque[ctypes.c_uint64] = collections.deque()
        self._block_len = block_len
        self._num_blocks = blocks
        self._base_addr = int(lib.dt_base_addr(handle))
        self._agent_name = str(lib.dt_agent_name(handle), "utf-8")
        self._fingerprint = str(lib.dt_config_fingerprint(handle), "ascii")
        self._backend = Backend(lib.dt_backend_kind(handle))

    # What it is. These answer after the end, too.

    @property
    def base_addr(self) -> int:
        return self._base_addr

    @property
    def num_blocks(self) -> int:
        return self._num_blocks

    @property
    def block_len(self) -> int:
        return self._block_len

    @property
    def agent_name(self) -> str:
        return self._agent_name

    @property
    def config_fingerprint(self) -> str:
        """16 hex digits, or "" without a configuration."""
        return self._fingerprint

    @property
    def backend(self) -> Backend:
        """What serves this transport; never AUTO."""
        return self._backend

    def block(self, index: int) -> memoryview:
        """The bytes of one block, which can be written."""
        view = self._view
        if view is None:
            raise Closed("the transport was closed: it has no memory any more")
        number = _convert.unsigned("index", index)
        if number >= self._num_blocks:
            raise OutOfRange(f"block {number} of {self._num_blocks}")
        return view[number * self._block_len : (number + 1) * self._block_len]

    def stats(self) -> Stats:
        """The counters. They can be read after close(), too."""
        counters = _abi.Stats()
        counters.struct_size = ctypes.sizeof(counters)
        check(lib.dt_get_stats(self._live(), ctypes.byref(counters)))
        return Stats(*(getattr(counters, name) for name in Stats._fields))

    # Peers.

    def get_agent_metadata(self) -> bytes:
        """What a peer needs for add_remote_peer(), besides base_addr, num_blocks and block_len."""
        return _filled(lib.dt_get_agent_metadata, self._live(), 4096)

    def get_mem_descriptor(self) -> bytes:
        """The list of the blocks for add_remote_agent(), 7 to 17 bytes for each."""
        return _filled(lib.dt_get_mem_descriptor, self._live(), 0)

    def export_handshake(self) -> bytes:
        """All that a peer must know of this transport, for import_handshake()."""
        return _filled(lib.dt_export_handshake, self._live(), 4096)

    def import_handshake(self, peer: str, blob: Buffer) -> None:
        """Makes a peer known by its export_handshake(), checked as a whole."""
        data = _convert.blob("blob", blob)
        check(lib.dt_import_handshake(self._live(), _convert.text("peer", peer), data, len(data)))

    def add_remote_peer(
        self,
        peer: str,
        agent_metadata: Buffer,
        base_addr: int,
        num_blocks: int,
        block_len: Optional[int] = None,
    ) -> None:
        """Makes a peer known by its parts. block_len: None for the same as here."""
        data = _convert.blob("agent_metadata", agent_metadata)
        if block_len is None:
            block_len = self._block_len
        check(
            lib.dt_add_remote_peer(
                self._live(),
                _convert.text("peer", peer),
                data,
                len(data),
                _convert.unsigned("base_addr", base_addr),
                _convert.unsigned("num_blocks", num_blocks),
                _convert.unsigned("block_len", block_len),
            )
        )

    def add_remote_agent(self, agent_metadata: Buffer, mem_descriptor: Buffer) -> str:
        """Makes an agent known by what it says of itself, and returns the name that it gave itself."""
        metadata = _convert.blob("agent_metadata", agent_metadata)
        descriptor = _convert.blob("mem_descriptor", mem_descriptor)
        name = ctypes.create_string_buffer(_NAME_ROOM)
        check(
            lib.dt_add_remote_agent(
                self._live(),
                metadata,
                len(metadata),
                descriptor,
                len(descriptor),
                name,
                _NAME_ROOM,
                ctypes.byref(ctypes.c_size_t()),
            )
        )
        return name.value.decode()

    def remove_remote_peer(self, peer: str) -> None:
        """Forgets a peer. Its transfers end as Status.CANCELLED, if their outcome is not known yet."""
        check(lib.dt_remove_remote_peer(self._live(), _convert.text("peer", peer)))

    def peer_status(self, peer: str) -> PeerStatus:
        """Tells whether a peer is healthy, and if not, why. Raises NotFound if nobody has this name."""
        name = _convert.text("peer", peer)
        status = outcome(lib.dt_peer_status(self._live(), name))
        if status == 0:
            return PeerStatus(Status.OK, "")
        reason = error(status, last_error())
        # These are about the call. All others are about the peer.
        if isinstance(reason, (InvalidArgument, NotFound, Closed, Forked, InternalError)):
            raise reason
        return PeerStatus(reason.status, reason.text)

    # Push.

    def write_blocks(
        self, peer: str, local_idxs: Indexes, remote_idxs: Indexes, user_data: int = 0
    ) -> int:
        """Starts to copy local blocks to blocks of a peer; poll() and wait() report the id once.

        Indexes may be any integers, one by one: a list, a range, an array.array, a NumPy array. Until
        the id was reported, the local blocks must not be changed, nor the remote ones be used.
        """
        here, there, count = _convert.index_pair(local_idxs, remote_idxs)
        name, number = _convert.text("peer", peer), _convert.unsigned("user_data", user_data)
        return self._submit(lib.dt_write_blocks, name, here, there, count, number)

    def read_blocks(
        self, peer: str, local_idxs: Indexes, remote_idxs: Indexes, user_data: int = 0
    ) -> int:
        """Starts to copy blocks of a peer to local blocks; poll() and wait() report the id once."""
        here, there, count = _convert.index_pair(local_idxs, remote_idxs)
        name, number = _convert.text("peer", peer), _convert.unsigned("user_data", user_data)
        return self._submit(lib.dt_read_blocks, name, here, there, count, number)

    def poll(self, peer: Optional[str] = None, limit: int = 256) -> list[Completion]:
        """Drives all work for a bounded time, and returns up to limit transfers that have ended.

        With the name of a peer only its own are returned, and the others stay. Call it regularly,
        also when nothing is in flight.
        """
        return self._report(_convert.optional_text("peer", peer), limit, None)

    def wait(
        self,
        timeout: Optional[float] = None,
        peer: Optional[str] = None,
        limit: int = 256,
    ) -> list[Completion]:
        """Polls until a transfer has ended or the time has run out; the list is empty then.

        timeout None: as long as it takes. Other threads go on meanwhile, and Ctrl-C ends it.
        """
        name = _convert.optional_text("peer", peer)
        if _convert.unsigned("limit", limit) == 0:
            raise InvalidArgument("limit is 0, but wait() has to return something")
        end = _convert.deadline(timeout)
        while True:
            timeout_ms = _convert.slice_of(end)
            ended = self._report(name, limit, timeout_ms)
            if ended or timeout_ms < _convert.SLICE_MS:
                return ended

    def cancel(self, ids: Union[int, Iterable[int]], *, wait: bool = False) -> list[int]:
        """Cancels transfers, and never waits.

        wait=False: the ids are forgotten at once and never reported; blocks of what cannot be stopped
        may still be touched until stats().draining has fallen. wait=True: what cannot be stopped stays
        in flight, is returned here, and reported when it has ended.
        """
        numbers = _convert.ids(ids)
        still = (ctypes.c_uint64 * max(len(numbers), 1))()
        count = ctypes.c_size_t()
        check(
            lib.dt_cancel(
                self._live(),
                numbers.tobytes(),
                len(numbers),
                1 if wait else 0,
                still,
                ctypes.byref(count),
            )
        )
        return still[: count.value]

    # Pull.

    def post_read(
        self,
        peer: str,
        local_idxs: Indexes,
        remote_idxs: Indexes,
        message: Buffer = b"",
    ) -> int:
        """Starts to copy blocks of an agent to local blocks; when all were read, it gets the message.

        The id is never reported: ask with check_xfer_state(), and free it with release_xfer().
        """
        here, there, count = _convert.index_pair(local_idxs, remote_idxs)
        data = _convert.blob("message", message)
        name = _convert.text("peer", peer)
        return self._submit(lib.dt_post_read, name, here, there, count, data, len(data))

    def check_xfer_state(self, xfer_id: int) -> XferState:
        """Drives all work as poll() does, and tells where a posted read stands."""
        number = _convert.unsigned("xfer_id", xfer_id)
        state = ctypes.c_int32()
        check(lib.dt_check_xfer_state(self._live(), number, ctypes.byref(state)))
        return XferState(number, state.value)

    def release_xfer(self, xfer_id: int) -> None:
        """Frees a posted read; one that is in progress is given up."""
        check(lib.dt_release_xfer(self._live(), _convert.unsigned("xfer_id", xfer_id)))

    def get_new_notifs(self, limit: int = 256) -> list[Notif]:
        """Drives all work as poll() does, and returns messages that have come, each once.

        Up to limit of them, and not more than about 64 KiB if they are long: call it again until
        there are none.
        """
        most = min(_convert.unsigned("limit", limit), _MOST_AT_ONCE)
        kept = self._kept_notifs.take(None, most, _notif)
        if kept:
            return kept
        notifs = _room(_abi.Notif, most)
        count, used = ctypes.c_size_t(), ctypes.c_size_t()
        # Other programs over NIXL may send longer ones than that.
        room = _NAME_ROOM + _MESSAGE_MAX
        while True:
            arena = ctypes.create_string_buffer(room)
            try:
                status = outcome(
                    lib.dt_get_new_notifs(
                        self._live(),
                        notifs,
                        most,
                        arena,
                        room,
                        ctypes.byref(count),
                        ctypes.byref(used),
                    )
                )
                if status != Status.BUFFER_TOO_SMALL:
                    check(status)
                    return [_notif(notif) for notif in notifs[: count.value]]
            except BaseException:
                if count.value:
                    self._kept_notifs.keep((None, notifs, 0, count.value, arena))
                raise
            room = used.value

    def send_notif(self, peer: str, message: Buffer) -> None:
        """Sends a message of 1 to 65536 bytes that goes with no read. It never waits: Busy."""
        data = _convert.blob("message", message)
        check(lib.dt_send_notif(self._live(), _convert.text("peer", peer), data, len(data)))

    # The end.

    def close(self, timeout: Optional[float] = 5.0) -> None:
        """Refuses new work, cancels what is in flight, and waits until nothing touches the memory.

        Raises Timeout if something still could when the time is over; the transport keeps the memory
        then. Call it again, or destroy(). Once it has returned, it does nothing. In a forked child it
        gives back what the child has, and leaves the parent's alone.
        """
        end = _convert.deadline(timeout)
        handle = self._handle
        if handle is None:
            return
        self._view = None
        while True:
            timeout_ms = _convert.slice_of(end)
            status = handle.close(timeout_ms)
            if status == Status.FORKED:
                self._handle = None
                return
            if status != Status.TIMEOUT:
                check(status)
                return
            if timeout_ms < _convert.SLICE_MS:
                text = last_error()
                # It begins with the time, of which the library knows the last slice only.
                raise Timeout(f"not closed after {timeout:g} s: {text.partition(': ')[2] or text}")

    def destroy(self) -> None:
        """Ends the transport, by force where close() could not, in about 1 s at most.

        If another thread is in a call on it, it happens when that call returns. Of a transport that is
        not referred to any more the same becomes by itself.
        """
        self._view = None
        self._handle = None

    @property
    def closed(self) -> bool:
        """True once close() or destroy() was called here."""
        return self._view is None

    def __enter__(self) -> Transport:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Transport belongs to its process and cannot be pickled or copied")

    def __repr__(self) -> str:
        return (
            f"<Transport {self._agent_name!r} over {self._backend.name}, {self._num_blocks} blocks"
            f" of {self._block_len} bytes{', closed' if self.closed else ''}>"
        )

    def _live(self) -> Handle:
        handle = self._handle
        if handle is None:
            raise Closed("the transport was destroyed")
        if self._orphans:
            self._cancel_orphans(handle)
        return handle

    def _submit(self, function: Any, *arguments: Any) -> int:
        out = ctypes.c_uint64()
        try:
            check(function(self._live(), *arguments, ctypes.byref(out)))
            return out.value
        except BaseException:
            # A handler of a signal may raise when the transfer has begun, and the caller does not get
            # its id then. The first line is no method of ours, before which another may raise.
            if out.value:
                self._orphans.append(out)
                self._live()
            raise

    def _cancel_orphans(self, handle: Handle) -> None:
        for out in list(self._orphans):
            status = outcome(lib.dt_cancel(handle, ctypes.byref(out), 1, 0, None, None))
            if status == Status.NO_MEMORY:
                return
            try:
                self._orphans.remove(out)
            except ValueError:
                # Another thread was here, too.
                pass

    def _report(
        self, peer: Optional[bytes], limit: int, timeout_ms: Optional[int]
    ) -> list[Completion]:
        most = min(_convert.unsigned("limit", limit), _MOST_AT_ONCE)
        kept = self._kept_completions.take(peer, most, _completion)
        if kept:
            return kept
        ended = _room(_abi.Completion, most)
        count = ctypes.c_size_t()
        out = ctypes.byref(count)
        try:
            if timeout_ms is None:
                check(lib.dt_poll(self._live(), peer, ended, most, out))
            else:
                check(lib.dt_wait(self._live(), peer, ended, most, timeout_ms, out))
            return [_completion(one) for one in ended[: count.value]]
        except BaseException:
            if count.value:
                self._kept_completions.keep((peer, ended, 0, count.value, None))
            raise


def _completion(one: Any) -> Completion:
    return Completion(one.id, one.user_data, one.bytes, status_of(one.status))


def _notif(one: Any) -> Notif:
    return Notif(one.agent_name.decode(), ctypes.string_at(one.msg, one.msg_len))


@functools.lru_cache(maxsize=32)
def _array_of(kind: Any, length: int) -> Any:
    # ctypes forgets the type when no array is left, and makes it anew, which takes longer than a poll.
    return kind * length


def _room(kind: Any, length: int) -> Any:
    return _array_of(kind, length)()


def _filled(function: Any, handle: Handle, room: int) -> bytes:
    """What a function writes that says how much room it needs."""
    needed = ctypes.c_size_t()
    while True:
        buffer = ctypes.create_string_buffer(room) if room else None
        status = outcome(function(handle, buffer, room, ctypes.byref(needed)))
        if status != Status.BUFFER_TOO_SMALL:
            check(status)
            return b"" if buffer is None else buffer.raw[: needed.value]
        room = needed.value
