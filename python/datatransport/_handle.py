# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""The life of a dt_transport.

dt_destroy must be the last use of a handle, and no other thread may be inside a call on it. Python
counts references, and a call holds one to the object that it is about. So the handle is destroyed when
its object goes: after the last call in any thread, without a lock.
"""

from __future__ import annotations

import atexit
import ctypes
import weakref
from typing import Any, Optional

from . import _convert
from ._kept import into
from ._library import lib
from .errors import Status, apart, outcome

# For all transports that are still open when the interpreter ends.
_EXIT_S = 0.5


class Handle:
    """A dt_transport, with the memory that it is for. dt_create has yet to fill `out`."""

    def __init__(self, memory: Any) -> None:
        # What ctypes passes for this object. What dt_create writes has an owner from then on, also if a
        # handler of a signal raises next.
        self._as_parameter_ = self.out = out = ctypes.c_void_p()
        # A list, so that a close can take the memory out of it.
        self._memory = [memory]
        destroy = weakref.finalize(self, _destroy, out, self._memory)
        # Threads may still be in calls then. See _close_all.
        destroy.atexit = False
        _memory[id(out)] = out, self._memory
        _handles[id(out)] = self
        if _exiting:
            _keep_for_good(self._memory)

    def close(self, timeout_ms: int) -> int:
        status = outcome(lib.dt_close(self, timeout_ms))
        if status == 0:
            # Nothing touches it any more.
            self._memory.clear()
        return status


# By id() of Handle.out, which is here, too, so that no other gets this id. Memory is here until its transport is
# destroyed: something may keep a finalizer from that, as a handler of a signal that raises in it, or the end of
# the interpreter.
_memory: dict[int, tuple[ctypes.c_void_p, list[Any]]] = {}
_handles: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()
_exiting = False


def _destroy(out: ctypes.c_void_p, memory: list[Any]) -> None:
    destroyed: list[None] = []
    with apart():
        try:
            # Where nothing is in the way, peers are told. Neither of the two waits for long.
            if out.value is not None:
                lib.dt_close(out, 0)
        finally:
            try:
                into(destroyed, lib.dt_destroy, out)
            finally:
                if destroyed:
                    _memory.pop(id(out), None)
                    memory.clear()


@atexit.register
def _close_all() -> None:
    # So that messages arrive and peers are told. Closing is safe while other threads are in calls,
    # destroying is not; the process's end does that.
    global _exiting
    _exiting = True
    end = _convert.deadline(_EXIT_S)
    # At first nothing is waited for, so that all peers are told; then each has its share of the time.
    share_ms = 0
    try:
        handles = _handles.valuerefs()
        while handles:
            handles = [one for one in handles if _stays_open(one(), end, share_ms)]
            if not _convert.slice_of(end):
                break
            share_ms = max(_convert.SLICE_MS // max(len(handles), 1), 1)
    finally:
        for _, memory in list(_memory.values()):
            _keep_for_good(memory)


def _stays_open(handle: Optional[Handle], end: float, share_ms: int) -> bool:
    if handle is None:
        return False
    return handle.close(min(_convert.slice_of(end), share_ms)) == Status.TIMEOUT


def _keep_for_good(memory: list[Any]) -> None:
    # What was not closed may be written to until the process has ended. The interpreter gives back what
    # it has before that, but for what seems to be in use.
    ctypes.pythonapi.Py_IncRef(ctypes.py_object(memory))
