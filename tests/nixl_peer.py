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


def move(operation, here, there, message=b""):
    request = agent.createXferReq(operation, here, there, peer, message)
    status = agent.postXferReq(request, message)
    while status == nixl.NIXL_IN_PROG:
        status = agent.getXferStatus(request)
    assert status == nixl.NIXL_SUCCESS, status
    agent.releaseXferReq(request)


# A memory descriptor is MessagePack: an array of arrays [address, length, device id].
def unpack(data):
    at = 0

    def take(count):
        nonlocal at
        at += count
        assert at <= len(data)
        return int.from_bytes(data[at - count : at], "big")

    def value():
        kind = take(1)
        if kind < 0x80:
            return kind
        if 0x90 <= kind <= 0x9F:
            return [value() for _ in range(kind & 0x0F)]
        if kind in (0xDC, 0xDD):
            return [value() for _ in range(take(2 << (kind - 0xDC)))]
        return take({0xCC: 1, 0xCD: 2, 0xCE: 4, 0xCF: 8}[kind])

    rows = value()
    assert at == len(data)
    return [tuple(row) for row in rows]


def pack(rows):
    packed = b"\xdd" + len(rows).to_bytes(4, "big")
    for row in rows:
        packed += b"\x93" + b"".join(b"\xcf" + number.to_bytes(8, "big") for number in row)
    return packed


def listed(words):
    return [int(word) for word in words.split(",")]


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
        move(nixl.NIXL_WRITE, blocks(base, int(words[1])), blocks(remote, int(words[1])))
        say("pushed")
    elif words[0] == "pull":
        move(nixl.NIXL_READ, blocks(base, int(words[1])), blocks(remote, int(words[1])))
        say("pulled")
    elif words[0] == "know":  # metadata, memory descriptor
        peer = agent.loadRemoteMD(bytes.fromhex(words[1])).decode()
        rows = unpack(bytes.fromhex(words[2]))
        say("known", len(rows))
    elif words[0] == "fetch":  # their blocks, our blocks, message
        there = nixl.nixlXferDList(nixl.DRAM_SEG, [rows[index] for index in listed(words[1])])
        here = [(base + index * block, block, 0) for index in listed(words[2])]
        move(nixl.NIXL_READ, nixl.nixlXferDList(nixl.DRAM_SEG, here), there, bytes.fromhex(words[3]))
        say("fetched")
    elif words[0] == "offer":  # some of our blocks, in this order
        offered = [(base + index * block, block, 0) for index in listed(words[1])]
        say("offered", pack(offered).hex())
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
