# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""The library's log as messages of the logging module.

The library has one log for the whole process. Until log_to() or log_off() is called, the environment
variable DT_LOG decides, as for every program.
"""

from __future__ import annotations

import atexit
import ctypes
import logging
import sys
from typing import Any, Callable, Optional

from . import _abi, errors
from ._library import lib

_OFF, _ERROR, _WARN, _INFO, _DEBUG = range(5)
_to_logging = {
    _ERROR: logging.ERROR,
    _WARN: logging.WARNING,
    _INFO: logging.INFO,
    _DEBUG: logging.DEBUG,
}

_logger: Optional[logging.Logger] = None
# True once this module has set the callback of the process.
_ours = False
_exiting = False


def log_to(logger: Optional[logging.Logger] = None, level: int = logging.WARNING) -> None:
    """Sends the log of the library to a logger, by default the one called "datatransport".

    level is the least important level that is wanted, one of the logging module. Messages come in
    whichever thread is in a call, at its end. Handlers may call the library, but what the library
    has to say about those calls is dropped, and neither this function nor log_off() does anything
    there. It waits for messages that are being handled: call it with no lock that a handler takes.
    """
    global _logger
    if logger is None:
        logger = logging.getLogger("datatransport")
    if not isinstance(logger, logging.Logger):
        raise TypeError(f"logger must be a logging.Logger, not {type(logger).__name__}")
    wanted = [ours for ours, theirs in _to_logging.items() if theirs >= level]
    _logger = logger
    _watch()
    _set(_callback, max(wanted, default=_ERROR))


def log_off() -> None:
    """No log at all, whatever DT_LOG says."""
    _set(None, _OFF)
    _watch_no_more()


def _set(callback: Optional[ctypes.c_void_p], level: int) -> None:
    global _ours
    if not _exiting:
        _ours = True
        lib.dt_set_log_callback(callback, None, level)


def _message(level: int, message: bytes, user: Optional[int]) -> None:
    logger = _logger
    if logger is None:
        return
    try:
        known = _to_logging.get(level, logging.DEBUG)
        logger.log(known, "%s", message.decode("utf-8", "replace"))
    except Exception:
        # ctypes gives it to sys.unraisablehook; who called the library has nothing to do with it. The
        # handlers of logging ask the same.
        if logging.raiseExceptions:
            raise
    except BaseException as error:
        # Ctrl-C, or what another handler of a signal raised. ctypes would print and forget it.
        errors.hold(error)


# A signal that has come while the library was in a call has its handler run when _message() begins, before
# its first line. What the handler raises then is nobody's but this hook's.
_hook_before: Optional[Callable[[sys.UnraisableHookArgs], Any]] = None


def _hook(unraisable: sys.UnraisableHookArgs) -> None:
    trace, error = unraisable.exc_traceback, unraisable.exc_value
    of_message = trace is not None and trace.tb_frame.f_code is _message.__code__
    if of_message and error is not None and not isinstance(error, Exception):
        errors.hold(error)
    elif _hook_before is not None:
        _hook_before(unraisable)


def _watch() -> None:
    global _hook_before
    # Once: another one may call ours by now.
    if _hook_before is None:
        _hook_before, sys.unraisablehook = sys.unraisablehook, _hook


def _watch_no_more() -> None:
    global _hook_before
    if sys.unraisablehook is _hook and _hook_before is not None:
        sys.unraisablehook, _hook_before = _hook_before, None


# One for the life of the process: inside a message the library keeps the one that it has.
_function = _abi.LOG_FUNCTION(_message)
_callback = ctypes.cast(_function, ctypes.c_void_p)


@atexit.register
def _stop() -> None:
    # Later the interpreter would end a thread that comes to call Python, in the middle of a call of
    # the library. When this has returned, no thread is in the callback and none comes there again.
    global _exiting
    _exiting = True
    if _ours:
        lib.dt_set_log_callback(None, None, _OFF)
