# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""Moves blocks of memory between the processes that serve a model: libdatatransport for Python.

Transport is where to start. What is promised about transfers, threads and peers is in dt.h and holds
here, too.
"""

from ._library import library_path, library_version
from .errors import (
    BackendError,
    BufferTooSmall,
    Busy,
    Cancelled,
    Closed,
    DataTransportError,
    Forked,
    Incompatible,
    InternalError,
    InvalidArgument,
    NoMemory,
    NotFound,
    OutOfRange,
    PeerLost,
    Status,
    Timeout,
    Unavailable,
)
from .fingerprint import compute_fingerprint, fingerprints_compatible
from .log import log_off, log_to
from .region import Region
from .results import Backend, Completion, Notif, PeerStatus, Stats, XferState
from .transport import Transport

__version__ = "0.1.0"

__all__ = [
    "Backend",
    "BackendError",
    "BufferTooSmall",
    "Busy",
    "Cancelled",
    "Closed",
    "Completion",
    "DataTransportError",
    "Forked",
    "Incompatible",
    "InternalError",
    "InvalidArgument",
    "NoMemory",
    "NotFound",
    "Notif",
    "OutOfRange",
    "PeerLost",
    "PeerStatus",
    "Region",
    "Stats",
    "Status",
    "Timeout",
    "Transport",
    "Unavailable",
    "XferState",
    "compute_fingerprint",
    "fingerprints_compatible",
    "library_path",
    "library_version",
    "log_off",
    "log_to",
]
