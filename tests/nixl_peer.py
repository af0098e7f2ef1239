"""A peer that knows nothing of this library: the Python bindings of NIXL's wheel, used directly.

Speaks the few lines of tests/nixl_support on stdin and stdout. Arguments: the folder of the bindings,
the agent's name, the file of its memory, its bytes and those of a block.
"""

import ctypes
import importlib.util
import mmap
import os
import pathlib
import sys

folder, name, path, size, block = sys.argv[1:6]
size, block = int(size), int(block)

found = next(pathlib.Path(folder).glob("_bindings.*.so"))
spec = importlib.util.spec_from_file_location("nixl_cu12._bindings", found)
nixl = importlib.util.module_from_spec(spec)
spec.loader.exec_module(nixl)

with open(path, "r+b") as file:
    memory = mmap.mmap(file.fileno(), size)
base = ctypes.addressof(ctypes.c_char.from_buffer(memory))

config = nixl.nixlAgentConfig()
config.useProgThread = True
agent = nixl.nixlAgent(name, config)
backend = agent.createBackend("UCX", {})
registered = nixl.nixlRegDList(nixl.DRAM_SEG, [(base, size, 0, b"")])
agent.registerMem(registered, [backend])


def say(*words):
    print("@" + " ".join(map(str, words)), flush=True)


def blocks(start, count):
    rows = [(start + index * block, block, 0) for index in range(count)]
    return nixl.nixlXferDList(nixl.DRAM_SEG, rows)


def move(operation, remote_base, count):
    request = agent.createXferReq(operation, blocks(base, count), blocks(remote_base, count), peer)
    status = agent.postXferReq(request)
    while status == nixl.NIXL_IN_PROG:
        status = agent.getXferStatus(request)
    assert status == nixl.NIXL_SUCCESS, status
    agent.releaseXferReq(request)


say("metadata", agent.getLocalMD().hex())
say("base", base)
peer = None
remote = 0
for line in iter(sys.stdin.readline, ""):
    words = line.split()
    if words[0] == "exit":
        break
    if words[0] == "add":
        peer = agent.loadRemoteMD(bytes.fromhex(words[1])).decode()
        remote = int(words[2])
        say("added")
    elif words[0] == "push":
        move(nixl.NIXL_WRITE, remote, int(words[1]))
        say("pushed")
    elif words[0] == "pull":
        move(nixl.NIXL_READ, remote, int(words[1]))
        say("pulled")
    elif words[0] == "send":
        agent.genNotif(peer, bytes.fromhex("".join(words[1:])))
        say("sent")
    elif words[0] == "receive":
        came = {}
        while sum(map(len, came.values())) < int(words[1]):
            for sender, messages in agent.getNotifs({}).items():
                came.setdefault(sender, []).extend(messages)
        say("received", *(f"{sender.encode().hex()}={m.hex()}" for sender in came for m in came[sender]))
    else:
        raise ValueError(line)
# The wheel cannot leave through exit() where the system has its own libnl.
sys.stdout.flush()
os._exit(0)
