# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""From Python's arguments to those of C. Nothing is cut or wrapped around: it is refused."""

from __future__ import annotations

import math
import operator
import sys
import time
from array import array
from typing import Any, Iterable, Optional, Sequence, SupportsIndex, Union

from .errors import InvalidArgument, OutOfRange

# What has the buffer protocol. The type for it is not known before Python 3.12, nor to NumPy there.
Buffer = Any
Indexes = Union[Iterable[int], Buffer]

# Calls that wait come back so often to let Python look for signals: Ctrl-C works.
SLICE_MS = 100

_UINT32_MAX = 2**32 - 1

if array("I").itemsize != 4 or array("Q").itemsize != 8:
    raise ImportError("datatransport needs a platform whose unsigned int has 32 bits")


def integer(name: str, value: SupportsIndex) -> int:
    try:
        return operator.index(value)
    except TypeError:
        # What the value's own code raises is the caller's, and says more.
        if hasattr(type(value), "__index__"):
            raise
        raise TypeError(f"{name} must be an integer, not {type(value).__name__}") from None


def unsigned(name: str, value: SupportsIndex, bits: int = 64) -> int:
    """An integer that fits an unsigned number of C. ctypes would wrap others around."""
    number = integer(name, value)
    if not 0 <= number < 1 << bits:
        raise InvalidArgument(f"{name} is {_shown(number)}, but must be 0 to 2^{bits} - 1")
    return number


def _shown(value: Any) -> str:
    # Python makes no text of a longer integer.
    if isinstance(value, int) and value.bit_length() > 256:
        return f"an integer of {value.bit_length()} bits"
    return repr(value)


def text(name: str, value: str) -> bytes:
    """A string for C, which would end at a NUL."""
    if not isinstance(value, str):
        raise TypeError(f"{name} must be a str, not {type(value).__name__}")
    if "\0" in value:
        raise InvalidArgument(f"{name} has a NUL in it")
    try:
        return value.encode()
    except UnicodeEncodeError as reason:
        raise InvalidArgument(f"{name} cannot be UTF-8: {reason}") from None


def optional_text(name: str, value: Optional[str]) -> Optional[bytes]:
    return None if value is None else text(name, value)


def blob(name: str, value: Buffer) -> bytes:
    """Bytes that nobody can change while the library reads them."""
    if isinstance(value, bytes):
        return value
    try:
        view = memoryview(value)
    except TypeError:
        # As above; classes have had this since Python 3.12.
        if hasattr(type(value), "__buffer__"):
            raise
        raise TypeError(f"{name} must be bytes, not {type(value).__name__}") from None
    return view.tobytes()


def deadline(timeout: Optional[float]) -> float:
    """When time.monotonic() reaches what this returns, timeout seconds are over. None: never."""
    if timeout is None:
        return math.inf
    try:
        # float() would take text, too.
        if not math.isnan(timeout) and timeout >= 0:
            return time.monotonic() + float(timeout)
    except OverflowError:
        # An integer that no float can be is longer than anything takes.
        if timeout > 0:
            return math.inf
    raise InvalidArgument(f"timeout is {_shown(timeout)}, but must be seconds from 0 on, or None")


def slice_of(end: float) -> int:
    """Milliseconds until then, but at most one slice."""
    left = max(end - time.monotonic(), 0.0) * 1000
    return SLICE_MS if left >= SLICE_MS else math.ceil(left)


def indexes(name: str, values: Indexes) -> bytes:
    """Block indexes as an array of uint32_t.

    Always a copy, also of what is such an array already: the library checks all indexes and then
    uses them, and with the interpreter's lock released another thread could change them between.
    """
    if isinstance(values, (str, bytes, bytearray)):
        # array() would take these for the memory of numbers.
        raise TypeError(f"{name} must be integers, one for each block, not {type(values).__name__}")
    if isinstance(values, (set, frozenset)):
        raise TypeError(
            f"{name} is a {type(values).__name__}, which has no order, but the first local block goes"
            " with the first remote one: give a list, for instance sorted(...)"
        )
    if isinstance(values, array) and values.typecode == "I":
        return values.tobytes()
    numpy = sys.modules.get("numpy")
    if numpy is not None and hasattr(values, "__array__"):
        return _from_numpy(numpy, name, values)
    return _packed(name, values if isinstance(values, (list, tuple)) else _listed(name, values))


def _listed(name: str, values: Indexes) -> list[int]:
    try:
        iterator = iter(values)
        # Of no format that memoryview knows to read.
        if isinstance(values, memoryview):
            return values.tolist()
    except (TypeError, NotImplementedError) as reason:
        raise TypeError(f"{name} must be integers, one for each block: {reason}") from None
    # What a generator raises is the caller's.
    return list(iterator)


def _packed(name: str, numbers: Sequence[int]) -> bytes:
    try:
        return array("I", numbers).tobytes()
    except (OverflowError, TypeError):
        for k, value in enumerate(numbers):
            _check(name, k, integer(f"{name}[{k}]", value))
        raise


def _from_numpy(numpy: Any, name: str, values: Any) -> bytes:
    numbers = numpy.asarray(values)
    if numbers.ndim != 1 or (numbers.dtype.kind not in "iu" and numbers.size):
        raise TypeError(
            f"{name} must be one row of integers, not {numbers.dtype} of shape {numbers.shape}"
        )
    if numbers.dtype != numpy.uint32 and numbers.size:
        if numbers.min() < 0 or numbers.max() > _UINT32_MAX:
            k = int(((numbers < 0) | (numbers > _UINT32_MAX)).argmax())
            _check(name, k, int(numbers[k]))
    return bytes(numbers.astype(numpy.uint32, copy=False).tobytes())


def _check(name: str, k: int, value: int) -> None:
    if not 0 <= value <= _UINT32_MAX:
        raise OutOfRange(
            f"{name}[{k}] is {_shown(value)}, but block indexes are 0 to {_UINT32_MAX}"
        )


def index_pair(local: Indexes, remote: Indexes) -> tuple[bytes, bytes, int]:
    """Both lists of a transfer, and their length."""
    here, there = indexes("local_idxs", local), indexes("remote_idxs", remote)
    if len(here) != len(there):
        raise InvalidArgument(
            f"{len(here) // 4} local indexes and {len(there) // 4} remote ones: each block"
            " needs both"
        )
    return here, there, len(here) // 4


def ids(values: Union[int, Iterable[int]]) -> array[int]:
    """Ids of transfers as an array of uint64_t."""
    if isinstance(values, (str, bytes, bytearray, memoryview)):
        raise TypeError(f"ids must be integers, not {type(values).__name__}")
    some = values if isinstance(values, Iterable) else (values,)
    return array("Q", [unsigned(f"ids[{k}]", value) for k, value in enumerate(some)])
