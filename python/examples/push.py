# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""Pushes blocks from one process into another: python3 push.py [local|nixl]"""

import multiprocessing
import sys

import datatransport as dt

BLOCKS, BLOCK_LEN = 8, 4096


def decode(control, backend):
    """Has room for blocks, and is told when they are there."""
    with dt.Region(BLOCKS * BLOCK_LEN) as region:
        with dt.Transport(region, BLOCK_LEN, backend=backend) as transport:
            control.send(transport.export_handshake())
            while not control.poll(0.001):
                transport.poll()  # over NIXL the target has to poll, too
            for index in control.recv():
                print(f"block {index}: {bytes(transport.block(index)).rstrip(bytes(1))}")
            control.send("thanks")


def prefill(control, backend):
    """Has the blocks, and writes them to where the other process wants them."""
    with dt.Region(BLOCKS * BLOCK_LEN) as region:
        with dt.Transport(region, BLOCK_LEN, backend=backend) as transport:
            transport.import_handshake("decode", control.recv())
            transport.block(0)[:5] = b"hello"
            transport.block(1)[:5] = b"world"
            transport.write_blocks("decode", [0, 1], [6, 3])
            for ended in transport.wait(10) or sys.exit("no answer within 10 s"):
                ended.raise_for_status()
            control.send([6, 3])
            control.recv()


if __name__ == "__main__":
    backend = sys.argv[1] if len(sys.argv) > 1 else "local"
    context = multiprocessing.get_context("spawn")  # transports do not survive a fork
    ours, theirs = context.Pipe()
    other = context.Process(target=decode, args=(theirs, backend))
    other.start()
    prefill(ours, backend)
    other.join()
    sys.exit(other.exitcode)
