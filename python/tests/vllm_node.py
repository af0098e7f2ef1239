# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""A process with the two transports of one maker, ours or the original ones, and what tests do with it.

Run with a file descriptor, it serves there; Node is the other end. Processes, because UCX reads its settings
once, because a peer must be able to die, and because the original's process may not leave through exit().
"""

import ctypes
import functools
import hashlib
import importlib
import logging
import mmap
import multiprocessing.connection
import os
import re
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import vllm_stand_in
from support import PATIENCE_S, ROOT, skip

HERE = Path(__file__).resolve().parent
# NumPy takes longer to compile than all that is done here. Nothing is wanted of site-packages.
QUICK = ("-S", "-X", f"pycache_prefix={ROOT / 'build' / 'python' / 'pycache'}")


class Raised(Exception):
    """What a call raised in a node: the names of its classes, the most special one first, and its text."""

    def __init__(self, kinds, text):
        super().__init__(kinds, text)
        self.kinds, self.text = kinds, text

    def __str__(self):
        return f"{self.kinds[0]}: {self.text}"


# What the tests hold.


@functools.lru_cache(maxsize=None)
def python():
    """(a Python that can load NIXL's bindings and vLLM's files, or None; why there is none)"""
    script = (ROOT / "scripts" / "vllm.sh").read_text(encoding="utf-8")
    (files,) = re.findall(r'^files="(.*?)"', script, re.DOTALL | re.MULTILINE)
    pinned = vllm_stand_in.THIRD_PARTY / "vllm" / ".pinned"
    if not pinned.exists() or files not in pinned.read_text(encoding="utf-8"):
        return None, "third_party/vllm is missing, or has other files: scripts/vllm.sh fetches it"
    bindings = [
        path.name
        for path in (vllm_stand_in.THIRD_PARTY / "nixl" / "nixl_cu12").glob("_bindings.cpython-3*")
    ]
    if not bindings:
        return None, "third_party/nixl is missing: scripts/nixl.sh fetches it"
    wanted = "3." + bindings[0].split("-")[1][1:]
    test = (
        f"import sys; assert '%d.%d' % sys.version_info[:2] == '{wanted}'; "
        "import vllm_stand_in as s; s.stand_in(); import numpy, msgspec, zmq, nixl_cu12._bindings, os; "
        "os._exit(0)"
    )
    reasons = []
    for candidate in (sys.executable, f"python{wanted}", "python3", "/usr/bin/python3"):
        try:
            command = [candidate, *QUICK, "-c", test]
            subprocess.run(command, cwd=HERE, check=True, capture_output=True)
            return candidate, ""
        except (OSError, subprocess.CalledProcessError) as error:
            reasons.append(
                f"{candidate}: {(getattr(error, 'stderr', None) or str(error).encode()).decode()[-200:]}"
            )
    return None, f"no Python {wanted}, for which NIXL's wheel is: {'; '.join(reasons)}"


def need():
    """Skips the tests of who calls it where vLLM's files cannot be run."""
    found, reason = python()
    if found is None:
        skip(reason)


class Node:
    """A started process. Calls of push and pull go to its transports; ask() calls a function of a module."""

    def __init__(self, maker, name, blocks=64, block=16 << 10, nixl=True, **settings):
        """settings: of the environment. Without nixl the originals do not find it."""
        self.maker, self.name, self.blocks, self.block = maker, name, blocks, block
        # Ours finds it where pip would put it, as the originals do.
        unset = ("UCX_TLS", "DT_BACKEND", "DT_NIXL_LIB_DIR", "PYTHONDONTWRITEBYTECODE")
        environment = {key: value for key, value in os.environ.items() if key not in unset}
        environment.update({"NIXL_LOG_LEVEL": "FATAL", **settings})
        ours, theirs = socket.socketpair()
        with theirs:
            self.process = subprocess.Popen(
                [python()[0], *QUICK, str(HERE / "vllm_node.py"), str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                env=environment,
                stdin=subprocess.DEVNULL,
            )
        self._control = multiprocessing.connection.Connection(ours.detach())
        self._waiting = None
        self.start("vllm_node.create", maker, name, blocks, block, nixl)

    def start(self, function, *arguments, **keywords):
        """Begins a call of what wait() or ask() returns. The first argument of the function is the state."""
        if self._waiting:
            self.wait()
        self._waiting = function
        self._control.send((function, arguments, keywords))

    def wait(self):
        what, self._waiting = self._waiting, None
        if not self._control.poll(PATIENCE_S):
            raise TimeoutError(f"{self.name} does not answer {what}")
        try:
            answer = self._control.recv()
        except EOFError:
            self.process.wait(PATIENCE_S)
            raise RuntimeError(
                f"{self.name} ended with {self.process.returncode} in {what}"
            ) from None
        if isinstance(answer, Raised):
            raise answer
        return answer

    def ask(self, function, *arguments, **keywords):
        self.start(function, *arguments, **keywords)
        return self.wait()

    def push(self, method, *arguments, **keywords):
        return self.ask("vllm_node.call", "push", method, *arguments, **keywords)

    def pull(self, method, *arguments, **keywords):
        return self.ask("vllm_node.call", "pull", method, *arguments, **keywords)

    def add(self, peer, name=None, **changes):
        """Registers the blocks of another node, or what was changed of that."""
        it = dict(peer.ask("vllm_node.of_push"), **changes)
        self.push("add_remote_peer", name or peer.name, **it)

    def know(self, peer):
        """Registers another node as one to read from."""
        return self.pull(
            "add_remote_peer", peer.pull("get_agent_metadata"), peer.pull("get_mem_descriptor")
        )

    def fill(self, seed):
        self.ask("vllm_node.fill", seed)

    def wrong(self, blocks):
        """Those of {block: (seed, block of the source)} that hold something else."""
        return self.ask("vllm_node.wrong", blocks)

    def stop(self):
        """Stands still until resume(). Waits for it: a signal is delivered some time."""
        self.process.send_signal(signal.SIGSTOP)
        os.waitid(os.P_PID, self.process.pid, os.WSTOPPED | os.WNOWAIT)

    def resume(self):
        self.process.send_signal(signal.SIGCONT)

    def kill(self):
        self.process.kill()
        self.process.wait(PATIENCE_S)
        self._control.close()


def until(what):
    """The first true result of what(); that comes soon, or not at all."""
    end = time.monotonic() + PATIENCE_S
    while not (found := what()):
        if time.monotonic() > end:
            raise TimeoutError(f"not seen in {PATIENCE_S} s: {what}")
        # The process that it waits for may need this core.
        time.sleep(0.001)
    return found


# What runs in the process.


def pattern(seed, index, size):
    once = hashlib.shake_128(f"{seed} {index}".encode()).digest(min(size, 4096))
    return (once * (size // len(once) + 1))[:size]


def create(state, maker, name, blocks, block, nixl):
    memory = mmap.mmap(-1, blocks * block)
    state.update(
        name=name, blocks=blocks, block=block, memory=memory, push=None, pull=None, classes={}
    )
    vllm_stand_in.stand_in()
    if maker == "original":
        if nixl:
            vllm_stand_in.nixl()
        state["classes"] = {
            "push": vllm_stand_in.original_push(),
            "pull": vllm_stand_in.original_pull(),
        }
    else:
        import datatransport.vllm as ours

        state["classes"] = {"push": ours.NixlTransport, "pull": ours.NixlDataTransport}


def open_transport(state, which, **keywords):
    """Not made before a test wants it: it takes most of the time."""
    if state[which] is None:
        blocks, block, memory = (state[key] for key in ("blocks", "block", "memory"))
        kind = state["classes"][which]
        if which == "push":
            view = memoryview(memory).cast("B", (blocks, block))
            state[which] = kind(state["name"], view, **keywords)
        else:
            base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
            state[which] = kind(
                agent_name=state["name"] + " pull",
                base_ptr=base,
                num_blocks=blocks,
                block_size_bytes=block,
                total_size_bytes=blocks * block,
                **keywords,
            )
    return state[which]


def call(state, which, method, *arguments, **keywords):
    if method in ("check_xfer_state", "release_xfer_handle") and "handles" in state:
        arguments = (state["handles"][arguments[0]],)
    found = getattr(open_transport(state, which), method)
    result = found(*arguments, **keywords) if callable(found) else found
    if type(result).__name__ == "PollResult":
        return tuple(result)
    if type(result).__name__ == "Future":
        error = result.exception(PATIENCE_S)
        return None if error is None else Raised(["Future"], str(error))
    if type(result).__module__.startswith("nixl"):
        # A handle of NIXL's stays here.
        state.setdefault("handles", []).append(result)
        return len(state["handles"]) - 1
    return result


def of_push(state):
    push = open_transport(state, "push")
    return {
        "agent_metadata": push.get_agent_metadata(),
        "base_addr": push.base_addr,
        "num_blocks": push.num_blocks,
        "block_len": push.block_len,
    }


def fill(state, seed):
    for index in range(state["blocks"]):
        at = index * state["block"]
        state["memory"][at : at + state["block"]] = pattern(seed, index, state["block"])


def wrong(state, blocks):
    size = state["block"]
    return [
        index
        for index, (seed, source) in blocks.items()
        if state["memory"][index * size : (index + 1) * size] != pattern(seed, source, size)
    ]


def raised(error):
    return Raised([kind.__name__ for kind in type(error).__mro__], str(error))


def serve(control):
    state = {}
    while True:
        try:
            function, arguments, keywords = control.recv()
        except EOFError:
            break
        module, _, name = function.rpartition(".")
        try:
            found = (
                sys.modules["__main__"]
                if module == "vllm_node"
                else importlib.import_module(module)
            )
            answer = getattr(found, name)(state, *arguments, **keywords)
        except Exception as error:
            answer = raised(error)
        control.send(answer)
    # The wheel's libnl and the system's, in one process, do not survive exit().
    os._exit(0)


if __name__ == "__main__":
    # Refusals are warned of, and here they are wanted.
    logging.getLogger().addHandler(logging.NullHandler())
    # Pickle calls Raised by this name.
    sys.modules["vllm_node"] = sys.modules["__main__"]
    Raised.__module__ = "vllm_node"
    sys.path.insert(1, str(HERE.parent))
    serve(multiprocessing.connection.Connection(int(sys.argv[1])))
