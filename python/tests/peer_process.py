# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""The other process of a test: does what is asked on stdin, and polls all the time.

The one who asks sends a line of JSON, ["name of a method", {arguments}], and gets ["ok", result].
"""

import json
import os
import select
import sys
import traceback

import datatransport as dt
from pattern import pattern


class Process:
    def __init__(self):
        self.transport = None
        self.notifs = []

    def create(self, backend, seed, num_blocks=16, block_len=4096, region=True):
        size = num_blocks * block_len
        memory = dt.Region(size) if region else bytearray(size)
        self.transport = dt.Transport(memory, block_len, backend=backend, agent_name=f"peer {seed}")
        for index in range(num_blocks):
            self.transport.block(index)[:] = pattern(seed, index, block_len)
        return {
            "handshake": self.transport.export_handshake().hex(),
            "metadata": self.transport.get_agent_metadata().hex(),
            "descriptor": self.transport.get_mem_descriptor().hex(),
            "base_addr": self.transport.base_addr,
            "num_blocks": num_blocks,
        }

    def block(self, index):
        return bytes(self.transport.block(index)).hex()

    def notifications(self):
        return [[one.agent_name, one.message.hex()] for one in self.notifs]

    def import_handshake(self, peer, blob):
        self.transport.import_handshake(peer, bytes.fromhex(blob))

    def send(self, peer, message):
        # Over NIXL the connection may still be being made, which polling does.
        while True:
            try:
                return self.transport.send_notif(peer, bytes.fromhex(message))
            except dt.Busy:
                self.drive()

    def close(self):
        self.transport.close()

    def drive(self):
        if self.transport is not None and not self.transport.closed:
            self.notifs += self.transport.get_new_notifs()


def main():
    process = Process()
    pending = b""
    while True:
        while b"\n" not in pending:
            if select.select([0], [], [], 0.001)[0]:
                more = os.read(0, 65536)
                if not more:
                    if process.transport is not None:
                        process.transport.close()
                    return
                pending += more
            process.drive()
        line, pending = pending.split(b"\n", 1)
        what, arguments = json.loads(line)
        try:
            answer = ["ok", getattr(process, what)(**arguments)]
        except Exception:
            answer = ["error", traceback.format_exc()]
        print(json.dumps(answer), flush=True)


if __name__ == "__main__":
    sys.exit(main())
