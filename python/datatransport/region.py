# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""Memory for a transport that peers on the same host reach in the fastest way."""

from __future__ import annotations

import ctypes
import weakref
from types import TracebackType
from typing import Any, NoReturn, Optional

from . import _convert
from ._library import lib
from .errors import InvalidArgument, check


class _Mapping:
    """What dt_region_alloc gave. It is given back when nothing refers to it any more."""

    def __init__(self, nbytes: int) -> None:
        base, fd = ctypes.c_void_p(), ctypes.c_int32(-1)
        # Before there is anything to free: nothing comes between then.
        free = weakref.finalize(self, lib.dt_region_free, base, nbytes, fd)
        # The process's end does that; other threads may still use the memory then.
        free.atexit = False
        check(lib.dt_region_alloc(nbytes, ctypes.byref(base), ctypes.byref(fd)))
        self.address = base.value or 0
        self.nbytes = nbytes
        self.fd = fd.value
        _mappings[self.address] = self

    def view(self) -> memoryview:
        # A memoryview keeps the array, and that, being of a class with attributes, the mapping. So do
        # all views and NumPy arrays that are made of it.
        kind: Any = type("RegionMemory", (ctypes.c_ubyte * self.nbytes,), {})
        array = kind.from_address(self.address)
        array.mapping = self
        return memoryview(array).cast("B")


_mappings: weakref.WeakValueDictionary[int, _Mapping] = weakref.WeakValueDictionary()


def memory_file(address: int, nbytes: int) -> Optional[tuple[int, int]]:
    """Descriptor and offset of memory that lies inside a Region, whatever object it was given as."""
    # valuerefs() is a list; other threads may make and free regions meanwhile.
    for reference in _mappings.valuerefs():
        mapping = reference()
        if mapping is None:
            continue
        offset = address - mapping.address
        if 0 <= offset and offset + nbytes <= mapping.nbytes:
            return mapping.fd, offset
    return None


class Region:
    """Zeroed memory of a memfd, as dt_region_alloc in dt.h makes it.

    Use it through view(), numpy() or, since Python 3.12, as a buffer. The memory lives as long as
    anything needs it: this object, a transport over it that was not closed, or a view. close() and the
    end of a with statement give up this object's share only.
    """

    def __init__(self, nbytes: int) -> None:
        self._view: Optional[memoryview] = None
        mapping = _Mapping(_convert.unsigned("nbytes", nbytes))
        self._nbytes = mapping.nbytes
        self._fd = mapping.fd
        self._address = mapping.address
        self._view = mapping.view()

    @property
    def nbytes(self) -> int:
        return self._nbytes

    @property
    def address(self) -> int:
        return self._address

    @property
    def closed(self) -> bool:
        return self._view is None

    def fileno(self) -> int:
        """The descriptor of the memfd, which stays the region's."""
        self.view()
        return self._fd

    def view(self) -> memoryview:
        """All of it, as bytes that can be written."""
        view = self._view
        if view is None:
            raise InvalidArgument("the region was closed")
        # One of the caller's own, which may be released, as a with statement does it.
        return memoryview(view)

    def numpy(self, dtype: Any = "uint8", shape: Any = -1) -> Any:
        """All of it as a NumPy array, without a copy."""
        import numpy

        return numpy.frombuffer(self.view(), dtype=dtype).reshape(shape)

    def close(self) -> None:
        """Gives the memory up; it goes back to the system when no view and no transport has it."""
        self._view = None

    def __len__(self) -> int:
        return self._nbytes

    def __buffer__(self, flags: int) -> memoryview:
        return self.view()

    def __enter__(self) -> Region:
        return self

    def __exit__(
        self,
        kind: Optional[type[BaseException]],
        error: Optional[BaseException],
        trace: Optional[TracebackType],
    ) -> None:
        self.close()

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Region is memory of this process and cannot be pickled or copied")

    def __repr__(self) -> str:
        state = "closed" if self.closed else f"at {self._address:#x}"
        return f"<Region of {self._nbytes} bytes, {state}>"
