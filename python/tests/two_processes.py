# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""Moves blocks between this process and another one, and compares the bytes on both sides.

main() is for a process of its own: UCX reads its settings once.
"""

from array import array

import datatransport as dt
from pattern import pattern
from support import Peer, until

BLOCKS, LENGTH = 16, 4096
OURS, THEIRS = "ours", "theirs"


def same(found, wanted, what):
    if bytes(found) != wanted:
        raise AssertionError(f"{what} has other bytes")


def known(transport, peer):
    """Makes the peer known in each of the ways, and returns the names."""
    hello = peer.hello
    transport.import_handshake("by handshake", bytes.fromhex(hello["handshake"]))
    transport.add_remote_peer(
        "by parts", bytes.fromhex(hello["metadata"]), hello["base_addr"], hello["num_blocks"]
    )
    name = transport.add_remote_agent(
        bytearray.fromhex(hello["metadata"]), memoryview(bytes.fromhex(hello["descriptor"]))
    )
    if name != f"peer {THEIRS}":
        raise AssertionError(name)
    return ["by handshake", "by parts", name]


def ended(transport, xfer_id, peer, blocks, user_data=0):
    found = transport.wait(60, peer)
    wanted = [dt.Completion(xfer_id, user_data, blocks * LENGTH, dt.Status.OK)]
    if found != wanted:
        raise AssertionError(f"{found}, not {wanted}")


def push(transport, peer, names):
    for k, name in enumerate(names):
        here, there = [2 * k, 2 * k + 1], array("I", [9 - 2 * k, 8 - 2 * k])
        data = 2**64 - 1 - k
        ended(transport, transport.write_blocks(name, here, there, data), name, 2, data)
        for mine, theirs in zip(here, there):
            content = bytes.fromhex(peer.ask("block", index=theirs))
            same(content, pattern(OURS, mine, LENGTH), f"block {theirs} of the peer")
    # Nothing else was written.
    for index in (3, 10, 15):
        content = bytes.fromhex(peer.ask("block", index=index))
        same(content, pattern(THEIRS, index, LENGTH), f"block {index} of the peer")


def read(transport, names):
    for k, name in enumerate(names):
        ended(transport, transport.read_blocks(name, (6 + k,), range(10 + k, 11 + k)), name, 1)
        same(transport.block(6 + k), pattern(THEIRS, 10 + k, LENGTH), f"block {6 + k}")


def pull(transport, peer, names):
    for k, name in enumerate(names):
        here, message = 10 + k, b"\0block %d\xff" % k
        number = transport.post_read(name, [here], [13 + k], message)
        state = until(lambda: checked(transport, number))
        state.raise_for_status()
        same(transport.block(here), pattern(THEIRS, 13 + k, LENGTH), f"block {here}")
        transport.release_xfer(number)
        wanted = ["this side", message.hex()]
        until(lambda: wanted in peer.ask("notifications"), transport.poll)
    if transport.wait(0):
        raise AssertionError("a posted read was reported")


def checked(transport, number):
    state = transport.check_xfer_state(number)
    return None if state.in_progress else state


def messages(transport, peer):
    longest = bytes(range(256)) * 256
    peer.ask("import_handshake", peer="us", blob=transport.export_handshake().hex())
    for message in (b"1", longest, b"2"):
        # The peer tells us when it has it, so we cannot be polling meanwhile: it is not Busy by us.
        until(lambda: sent(transport, message), transport.poll)
    until(lambda: len(peer.ask("notifications")) >= 6, transport.poll)
    last = [bytes.fromhex(message) for _, message in peer.ask("notifications")][-3:]
    if last != [b"1", longest, b"2"]:
        raise AssertionError([len(one) for one in last])


def sent(transport, message):
    try:
        transport.send_notif("by handshake", message)
    except dt.Busy:
        return False
    return True


def main(backend):
    kind = "local" if backend == "local" else "nixl"
    with Peer(backend, THEIRS) as peer, dt.Region(BLOCKS * LENGTH) as region:
        with dt.Transport(region, LENGTH, backend=kind, agent_name="this side") as transport:
            for index in range(BLOCKS):
                transport.block(index)[:] = pattern(OURS, index, LENGTH)
            names = known(transport, peer)
            push(transport, peer, names)
            read(transport, names)
            pull(transport, peer, names)
            messages(transport, peer)
            for name in names:
                transport.remove_remote_peer(name)
            stats = transport.stats()
            if (stats.submitted, stats.done, stats.peers) != (9, 9, 0):
                raise AssertionError(stats)
    print("all bytes were compared")
