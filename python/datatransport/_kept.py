# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""What must not be lost when a handler of a signal raises, as Ctrl-C does.

Python runs such handlers in the main thread, as soon as a call has returned, before its result is stored. But
the library tells what has ended once only, and what it has begun goes on. So all that matters is written
into something that is there before the call, and goes from place to place inside one call of what is
not written in Python, where no handler runs. (Before Python 3.11 handlers run at more places, of which a
few are left.)
"""

from __future__ import annotations

import collections
from typing import Any, Callable, Optional, TypeVar

_T = TypeVar("_T")


def into(found: list[Any], function: Callable[..., Any], *arguments: Any) -> None:
    """Appends what a function returns that is not written in Python."""
    found.extend(map(function, *[(one,) for one in arguments]))


class Kept:
    """What was reported, and an exception has kept from the caller. For the next who asks.

    May be used by several threads, and by handlers of signals: it has no lock.
    """

    def __init__(self) -> None:
        # (the peer that was asked about, an array of ctypes, its first, its end, what its pointers lead into)
        self._all: collections.deque[tuple[Optional[bytes], Any, int, int, Any]]
        self._all = collections.deque()
        # With one of these. No method, as that would begin with a place where handlers run.
        self.keep = self._all.append

    def take(self, peer: Optional[bytes], most: int, convert: Callable[[Any], _T]) -> list[_T]:
        """Up to `most` of what was kept; for a peer, of what was asked about that one."""
        # What is taken, the first of it last.
        mine: list[Any] = []
        try:
            for _ in range(len(self._all) if most else 0):
                try:
                    into(mine, collections.deque.popleft, self._all)
                except IndexError:
                    break
                asked, items, first, end, memory = mine[0]
                if peer is not None and peer != asked:
                    self._all.extend(map(mine.pop, (0,)))
                    continue
                cut = min(end, first + most)
                if cut < end:
                    part = asked, items, first, cut, memory
                    rest = asked, items, cut, end, memory
                    mine[:] = rest, part
                    self._all.extendleft(map(mine.pop, (0,)))
                return [convert(item) for item in items[first:cut]]
        except BaseException:
            self._all.extendleft(mine)
            raise
        return []
