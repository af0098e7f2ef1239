# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""What calls of a transport take and return."""

from __future__ import annotations

import enum
from typing import NamedTuple, Union

from ._library import lib
from .errors import Status, error, status_name, status_of


class Backend(enum.IntEnum):
    """What moves the bytes."""

    AUTO = 0
    LOCAL = 1
    NIXL = 2


class Completion(NamedTuple):
    """How a transfer ended."""

    id: int
    user_data: int
    # Bytes that were moved; 0 unless status is OK.
    bytes: int
    # Status.OK, or why the transfer failed.
    status: Union[Status, int]

    @property
    def ok(self) -> bool:
        return self.status == 0

    def raise_for_status(self) -> None:
        """Raises the exception for status, unless it is OK."""
        _raise_for(self.id, self.status)


class XferState(NamedTuple):
    """Where a posted read stands."""

    id: int
    # DT_XFER_DONE, DT_XFER_PROC, or the negative status of what failed.
    code: int

    @property
    def done(self) -> bool:
        return self.code == 0

    @property
    def in_progress(self) -> bool:
        return self.code > 0

    @property
    def failed(self) -> bool:
        return self.code < 0

    @property
    def status(self) -> Union[Status, int]:
        """Why it failed; Status.OK for one that has not."""
        return status_of(min(self.code, 0))

    def raise_for_status(self) -> None:
        """Raises the exception for a read that has failed."""
        _raise_for(self.id, min(self.code, 0))

    def __str__(self) -> str:
        return str(lib.dt_xfer_state_str(self.code), "ascii")


class Notif(NamedTuple):
    """A message that has come."""

    # The name that the sender gave itself: a claim.
    agent_name: str
    message: bytes


class PeerStatus(NamedTuple):
    """How a peer is."""

    # Status.OK, or why the peer is faulted.
    status: Union[Status, int]
    # The library's sentence about that; "" for a healthy peer.
    text: str

    @property
    def healthy(self) -> bool:
        return self.status == 0


class Stats(NamedTuple):
    """Counters of a transport since it was made; dt_stats in dt.h says what each one counts."""

    submitted: int
    done: int
    failed: int
    cancelled: int
    draining: int
    inflight: int
    bytes_written: int
    bytes_read: int
    notifs_sent: int
    notifs_received: int
    polls: int
    peers: int
    notifs_refused: int


def _raise_for(xfer_id: int, status: int) -> None:
    if status != 0:
        raise error(
            status,
            f"transfer {xfer_id} ended as {status_name(status)}; the log says why",
        )
