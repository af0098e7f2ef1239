"""What the library has told, as it tells it once, and an exception has kept from the caller.

A handler of a signal may raise as soon as a call of the library has returned: Ctrl-C while wait() is in
one. Who catches that, and goes on until all is reported, must not wait for ever.
"""

from __future__ import annotations

import collections
from typing import Any, Callable, Optional, TypeVar

_T = TypeVar("_T")


class Kept:
    """May be used by several threads, and by handlers of signals: it has no lock."""

    def __init__(self) -> None:
        # (the peer that was asked about, an array of ctypes, its first, its end, what its pointers lead into)
        self._all: collections.deque[tuple[Optional[bytes], Any, int, int, Any]]
        self._all = collections.deque()

    def keep(self, peer: Optional[bytes], items: Any, count: int, memory: Any = None) -> None:
        if count:
            self._all.append((peer, items, 0, count, memory))

    def take(self, peer: Optional[bytes], most: int, convert: Callable[[Any], _T]) -> list[_T]:
        """Up to `most` of what was kept; for a peer, of what was asked about that one."""
        for _ in range(len(self._all) if most else 0):
            try:
                one = self._all.popleft()
            except IndexError:
                break
            asked, items, first, end, memory = one
            if peer is not None and peer != asked:
                self._all.append(one)
                continue
            cut = min(end, first + most)
            try:
                found = [convert(item) for item in items[first:cut]]
            except BaseException:
                self._all.appendleft(one)
                raise
            if cut < end:
                self._all.appendleft((asked, items, cut, end, memory))
            return found
        return []
