"""The life of a dt_transport.

dt_destroy must be the last use of a handle, and no other thread may be inside a call on it. Python
counts references, and a call holds one to the object that it is about. So the handle is destroyed when
its object goes: after the last call in any thread, without a lock.
"""

from __future__ import annotations

import atexit
import ctypes
import weakref
from typing import Any

from . import _convert
from ._library import lib

# For all transports that are still open when the interpreter ends.
_EXIT_S = 0.5


class Handle:
    """A dt_transport, with the memory that it is for."""

    def __init__(self, address: int, memory: Any) -> None:
        # What ctypes passes for this object.
        self._as_parameter_ = ctypes.c_void_p(address)
        # A list, so that a close can take the memory out of it.
        self._memory = [memory]
        destroy = weakref.finalize(self, _destroy, address, self._memory)
        # Threads may still be in calls then. See _close_all.
        destroy.atexit = False
        _handles[address] = self

    def close(self, timeout_ms: int) -> int:
        status = int(lib.dt_close(self, timeout_ms))
        if status == 0:
            # Nothing touches it any more.
            self._memory.clear()
        return status


def _destroy(address: int, memory: list[Any]) -> None:
    # Where nothing is in the way, peers are told. Neither of the two waits for long.
    lib.dt_close(address, 0)
    lib.dt_destroy(address)
    memory.clear()


_handles: weakref.WeakValueDictionary[int, Handle] = weakref.WeakValueDictionary()


@atexit.register
def _close_all() -> None:
    # So that messages arrive and peers are told. Closing is safe while other threads are in calls,
    # destroying is not; the process's end does that.
    end = _convert.deadline(_EXIT_S)
    for reference in _handles.valuerefs():
        handle = reference()
        if handle is not None:
            handle.close(_convert.slice_of(end))
