# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""What the tests share: where NIXL and NumPy are, and other processes."""

import json
import os
import subprocess
import sys
import time
import unittest
from pathlib import Path

TESTS = Path(__file__).resolve().parent
ROOT = TESTS.parents[1]
THIRD_PARTY = ROOT / "third_party"
# Longer than anything takes, on any machine, however busy.
PATIENCE_S = 120

# The library of this source tree, for this process and those that it starts.
os.environ.setdefault(
    "DATATRANSPORT_LIBRARY", str(ROOT / "target" / "release" / "libdatatransport.so")
)

BACKENDS = {
    "local": {},
    "nixl": {},
    # UCX takes longer to change the C library's memory functions in place than for the rest of its loading.
    "nixl_tcp": {"UCX_TLS": "tcp", "UCX_MEM_MMAP_HOOK_MODE": "none"},
}
# Without site-packages, which take longer to load than a program here takes. Python 3.12 warns of every
# fork() where there are threads, and UCX has one.
PYTHON = (sys.executable, "-S", "-X", "faulthandler", "-W", "ignore::DeprecationWarning")


def skip(why):
    """Says aloud that something is not checked. Where everything must be there, that is a failure."""
    if os.environ.get("CI"):
        raise AssertionError(f"SKIPPED, which CI=true does not allow: {why}")
    # On a line of its own: unittest prints dots meanwhile.
    print(f"\nSKIPPED: {why}", file=sys.stderr, flush=True)
    raise unittest.SkipTest(why)


def numpy_or_skip():
    try:
        import numpy
    except ImportError:
        # scripts/nixl.sh fetches it for one version of Python.
        folder = str(THIRD_PARTY / "python")
        sys.path.append(folder)
        try:
            import numpy
        except ImportError:
            sys.path.remove(folder)
            version = ".".join(map(str, sys.version_info[:2]))
            skip(f"arrays of NumPy: Python {version} has none, nor is there one for it in {folder}")
    return numpy


def environment(backend="local"):
    """The environment of a process that uses a backend of BACKENDS."""
    found = {**os.environ, **BACKENDS[backend], "PYTHONPATH": str(TESTS.parent)}
    # What a finalizer or a callback raises is a failure, too: it is on stderr.
    found.pop("DT_LOG", None)
    if backend != "local":
        usual = THIRD_PARTY / "nixl" / ".nixl_cu12.mesonpy.libs"
        folder = Path(found.setdefault("DT_NIXL_LIB_DIR", str(usual)))
        if not (folder / "libnixl_capi.so").exists():
            skip(f"{backend}: there is no NIXL in {folder}; scripts/nixl.sh fetches it")
        found.setdefault("NIXL_LOG_LEVEL", "FATAL")
    return found


def start(source, *arguments, backend="local", log=None):
    """Starts a program of Python, which run() and finish() wait for."""
    return subprocess.Popen(
        [*PYTHON, "-c", source, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=str(TESTS),
        env={**environment(backend), **({"DT_LOG": log} if log else {})},
    )


def finish(process):
    """What it has printed on stdout and stderr, and its exit status."""
    try:
        out, log = process.communicate(timeout=PATIENCE_S)
    except BaseException:
        process.kill()
        process.communicate()
        raise
    return out, log, process.returncode


def run(source, *arguments, **options):
    return finish(start(source, *arguments, **options))


def until(condition, drive=lambda: None):
    """Drives work until something is true, and returns it."""
    end = time.monotonic() + PATIENCE_S
    while True:
        found = condition()
        if found:
            return found
        if time.monotonic() > end:
            raise AssertionError("it has not happened")
        drive()


class Peer:
    """peer_process.py in a process of its own, and what it is asked to do."""

    def __init__(self, backend, seed, **options):
        self._process = subprocess.Popen(
            [*PYTHON, str(TESTS / "peer_process.py")],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            env=environment(backend),
        )
        name = "local" if backend == "local" else "nixl"
        self.pid = self._process.pid
        self.hello = self.ask("create", backend=name, seed=seed, **options)

    def ask(self, what, **arguments):
        """Does it there, and returns the result. An exception there is one here."""
        self._process.stdin.write(json.dumps([what, arguments]) + "\n")
        self._process.stdin.flush()
        answer = self._process.stdout.readline()
        if not answer:
            raise AssertionError(f"the peer has ended with {self._process.wait()}")
        kind, result = json.loads(answer)
        if kind == "error":
            raise AssertionError(f"the peer could not {what}:\n{result}")
        return result

    def kill(self):
        self._process.kill()
        self._process.wait()

    def end(self):
        """Lets it close its transport and exit, and returns its exit status."""
        self._process.stdin.close()
        status = self._process.wait(PATIENCE_S)
        self._process.stdout.close()
        return status

    def __enter__(self):
        return self

    def __exit__(self, kind, error, trace):
        if kind is not None:
            self._process.kill()
        status = self.end()
        if kind is None and status not in (0, -9):
            raise AssertionError(f"the peer has ended with {status}")
