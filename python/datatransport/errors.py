# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""An exception for each status of the library."""

from __future__ import annotations

import contextlib
import enum
import threading
from typing import Any, Iterator, Optional, Union

from ._library import lib


class Status(enum.IntEnum):
    """The result of a call, or of a transfer: DT_OK and the DT_ERR_ codes."""

    OK = 0
    INVALID_ARG = -1
    OUT_OF_RANGE = -2
    NOT_FOUND = -3
    INCOMPATIBLE = -4
    BUFFER_TOO_SMALL = -5
    CLOSED = -6
    BACKEND = -7
    UNAVAILABLE = -8
    PEER_LOST = -9
    CANCELLED = -10
    TIMEOUT = -11
    BUSY = -12
    NO_MEMORY = -13
    FORKED = -14
    INTERNAL = -15


class DataTransportError(Exception):
    """What every error of the library is.

    str() of it is the library's sentence. A newer library may have codes that are not in Status;
    status is a plain int then.
    """

    status: Union[Status, int] = Status.INTERNAL

    def __init__(self, text: str, status: Optional[int] = None) -> None:
        # One argument: OSError would take two for errno and a text.
        super().__init__(text)
        self.text = text
        if status is not None:
            self.status = status_of(status)

    def __str__(self) -> str:
        return self.text

    def __reduce__(self) -> Any:
        return error, (int(self.status), self.text)


class InvalidArgument(DataTransportError, ValueError):
    """An argument is malformed; the caller has to change the call."""

    status = Status.INVALID_ARG


class OutOfRange(DataTransportError, IndexError):
    """A block index is not below the number of blocks of its side. Nothing was moved."""

    status = Status.OUT_OF_RANGE


class NotFound(DataTransportError, LookupError):
    """No peer or transfer has this name."""

    status = Status.NOT_FOUND


class Incompatible(DataTransportError):
    """Each argument is well-formed, but they do not fit together or to this library."""

    status = Status.INCOMPATIBLE


class BufferTooSmall(DataTransportError):
    """The package makes room by itself, so that this is not met."""

    status = Status.BUFFER_TOO_SMALL


class Closed(DataTransportError):
    """The transport was closed."""

    status = Status.CLOSED


class BackendError(DataTransportError):
    """The backend or the operating system reported a failure that no other code names."""

    status = Status.BACKEND


class Unavailable(DataTransportError):
    """What this needs is missing: a library, a plugin, a permission. The text says which."""

    status = Status.UNAVAILABLE


class PeerLost(DataTransportError, ConnectionError):
    """The peer's process is gone, it has closed its transport, or the peer is faulted."""

    status = Status.PEER_LOST


class Cancelled(DataTransportError):
    """The transfer was cancelled: with its peer, or by cancel()."""

    status = Status.CANCELLED


class Timeout(DataTransportError, TimeoutError):
    """The time that the caller allowed has run out."""

    status = Status.TIMEOUT


class Busy(DataTransportError):
    """Not possible now. Poll, then try again."""

    status = Status.BUSY


class NoMemory(DataTransportError, MemoryError):
    """Memory, file descriptors or other bounded resources ran out."""

    status = Status.NO_MEMORY


class Forked(DataTransportError, RuntimeError):
    """The transport was made before a fork() and used in the child."""

    status = Status.FORKED


class InternalError(DataTransportError, RuntimeError):
    """A fault of the library. The transport refuses all further work."""

    status = Status.INTERNAL


_members = {int(status): status for status in Status}
_classes = {
    int(kind.status): kind
    for kind in (
        InvalidArgument,
        OutOfRange,
        NotFound,
        Incompatible,
        BufferTooSmall,
        Closed,
        BackendError,
        Unavailable,
        PeerLost,
        Cancelled,
        Timeout,
        Busy,
        NoMemory,
        Forked,
        InternalError,
    )
}


def status_of(code: int) -> Union[Status, int]:
    """The member of Status for a code, or the code if there is none."""
    return _members.get(code, code)


def status_name(code: int) -> str:
    """The library's name of a code, for instance "DT_ERR_TIMEOUT"."""
    return str(lib.dt_status_str(code), "ascii")


def last_error() -> str:
    """The library's sentence about the last call that failed on this thread."""
    return str(lib.dt_last_error(), "utf-8", "replace")


def error(code: int, text: str) -> DataTransportError:
    """The exception for a code."""
    return _classes.get(code, DataTransportError)(text, code)


class _Held(threading.local):
    def __init__(self) -> None:
        self.errors: list[BaseException] = []


_held = _Held()


def hold(error: BaseException) -> None:
    """Lets the call of the library that this thread is in raise an exception, for code that runs inside it."""
    _held.errors.append(error)


def outcome(code: int) -> int:
    """What a function of the library returned, unless something in its log has to be raised."""
    errors = _held.errors
    if errors:
        first = errors[0]
        # All of them: none may come out of another call.
        errors.clear()
        raise first
    return code


@contextlib.contextmanager
def apart() -> Iterator[None]:
    """For calls that may happen inside others, as finalizers do: these raise what is theirs, and no more."""
    before, _held.errors = _held.errors, []
    try:
        yield
        outcome(0)
    finally:
        _held.errors = before


def check(code: int) -> None:
    """Raises the exception for what a function of the library returned, unless that is DT_OK."""
    if outcome(code) != 0:
        raise error(code, last_error() or status_name(code))
