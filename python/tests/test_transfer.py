# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""Transfers between processes, over every backend, and what becomes of them when a peer ends."""

import subprocess
import threading
import unittest
from unittest import mock

import datatransport as dt
from pattern import pattern
from support import BACKENDS, PATIENCE_S, PYTHON, ROOT, Peer, environment, finish, run, start, until

LENGTH = 4096


class TwoProcesses(unittest.TestCase):
    # Side by side: most of the time they wait for UCX.
    def test_bytes_over_every_backend(self):
        source = "import sys, two_processes; two_processes.main(sys.argv[1])"
        programs = {backend: start(source, backend, backend=backend) for backend in BACKENDS}
        for backend, program in programs.items():
            with self.subTest(backend):
                self.assertEqual(finish(program), ("all bytes were compared\n", "", 0))

    def test_the_example(self):
        found = subprocess.run(
            [*PYTHON, str(ROOT / "python" / "examples" / "push.py")],
            env=environment(),
            stdout=subprocess.PIPE,
            timeout=PATIENCE_S,
        )
        wanted = b"block 6: b'hello'\nblock 3: b'world'\n"
        self.assertEqual((found.returncode, found.stdout), (0, wanted))

    def test_the_nixl_that_pip_has_installed(self):
        source = (
            "import os, sys, datatransport as dt\n"
            "folder = os.environ.pop('DT_NIXL_LIB_DIR')\n"
            "def kind(backend):\n"
            "    with dt.Transport(bytearray(64), 64, backend=backend) as t: return t.backend.name\n"
            "try: kind('nixl')\n"
            "except dt.Unavailable: print('none')\n"
            "sys.path.append(os.path.dirname(folder))\n"
            "print(kind('nixl'), kind('auto'))\n"
        )
        self.assertEqual(run(source, backend="nixl"), ("none\nNIXL NIXL\n", "", 0))


class Local(unittest.TestCase):
    def setUp(self):
        self.transport = dt.Transport(dt.Region(8 * LENGTH), LENGTH, backend="local")
        self.addCleanup(self.transport.close)

    def test_memory_of_a_peer_without_a_descriptor(self):
        with Peer("local", "plain", region=False) as peer:
            self.transport.import_handshake("p", bytes.fromhex(peer.hello["handshake"]))
            number = self.transport.read_blocks("p", [1], [7])
            self.assertEqual(self.transport.wait(PATIENCE_S)[0].id, number)
            self.assertEqual(bytes(self.transport.block(1)), pattern("plain", 7, LENGTH))

    def test_a_peer_that_is_killed(self):
        with Peer("local", "killed") as peer:
            self.transport.import_handshake("p", bytes.fromhex(peer.hello["handshake"]))
            self.assertEqual(self.transport.peer_status("p"), (dt.Status.OK, ""))
            self.assertTrue(self.transport.peer_status("p").healthy)
            peer.kill()
            until(lambda: not self.transport.peer_status("p").healthy, self.transport.poll)
            status = self.transport.peer_status("p")
            self.assertEqual(status.status, dt.Status.PEER_LOST)
            self.assertNotEqual(status.text, "")
            with self.assertRaises(dt.PeerLost) as caught:
                self.transport.write_blocks("p", [0], [0])
            self.assertIsInstance(caught.exception, ConnectionError)

    def test_a_peer_that_has_closed(self):
        with Peer("local", "closed") as peer:
            self.transport.import_handshake("p", bytes.fromhex(peer.hello["handshake"]))
            peer.ask("close")
            number = None
            try:
                number = self.transport.write_blocks("p", range(8), range(8), 5)
            except dt.PeerLost:
                pass
            if number is not None:
                [ended] = self.transport.wait(PATIENCE_S)
                self.assertEqual((ended.id, ended.user_data, ended.bytes), (number, 5, 0))
                self.assertFalse(ended.ok)
                with self.assertRaisesRegex(dt.PeerLost, f"transfer {number} ended as DT_ERR"):
                    ended.raise_for_status()

    def test_cancelled_ids_are_not_reported(self):
        # Blocks so large that a submission copies none of them.
        transport = dt.Transport(dt.Region(8 << 20), 1 << 20, backend="local")
        self.addCleanup(transport.close)
        transport.import_handshake("me", transport.export_handshake())
        some = [transport.write_blocks("me", range(4), range(4, 8)) for _ in range(6)]
        self.assertEqual(transport.cancel(some[0]), [])
        self.assertEqual(transport.cancel(iter(some[1:3]), wait=True), [])
        self.assertEqual(transport.cancel([]), [])
        self.assertEqual(transport.cancel([2**64 - 1, 0]), [])
        left = []
        until(lambda: len(left) == 3, lambda: left.extend(transport.poll(limit=1)))
        self.assertEqual([one.id for one in left], some[3:])
        self.assertEqual(transport.poll(), [])
        stats = transport.stats()
        self.assertEqual((stats.done, stats.cancelled, stats.inflight), (3, 3, 0))
        number = transport.write_blocks("me", range(4), range(4, 8))
        transport.remove_remote_peer("me")
        [ended] = transport.wait(PATIENCE_S, "me")
        self.assertEqual((ended.id, ended.status), (number, dt.Status.CANCELLED))
        self.assertRaises(dt.Cancelled, ended.raise_for_status)
        self.assertRaises(dt.NotFound, transport.write_blocks, "me", [0], [1])
        self.assertRaises(dt.NotFound, transport.peer_status, "me")

    def test_limits_leave_the_rest(self):
        self.transport.import_handshake("me", self.transport.export_handshake())
        for k in range(10):
            self.transport.send_notif("me", b"%d" % k)
            self.transport.write_blocks("me", [0], [1], k)
        found = [self.transport.get_new_notifs(4) for _ in range(4)]
        self.assertEqual([len(some) for some in found], [4, 4, 2, 0])
        self.assertEqual(
            [one.message for some in found for one in some], [b"%d" % k for k in range(10)]
        )
        self.assertEqual({one.agent_name for one in found[0]}, {self.transport.agent_name})
        ended = []
        until(lambda: len(ended) >= 10, lambda: ended.extend(self.transport.wait(1, limit=3)))
        self.assertEqual([one.user_data for one in ended], list(range(10)))
        self.assertEqual(self.transport.poll(limit=0), [])
        self.assertEqual(self.transport.poll("nobody"), [])

    def test_messages_that_are_longer_than_ours(self):
        self.transport.import_handshake("me", self.transport.export_handshake())
        sent = [b"short", bytes(60000), b"x" * 30000, b"last"]
        for message in sent:
            self.transport.send_notif("me", message)
        found = []
        # Other programs send such; here the room is less instead.
        with mock.patch("datatransport.transport._MESSAGE_MAX", 10):
            until(
                lambda: len(found) == 4,
                lambda: found.extend(one.message for one in self.transport.get_new_notifs()),
            )
        self.assertEqual(found, sent)

    def test_waiting(self):
        self.assertEqual(self.transport.wait(0), [])
        self.assertEqual(self.transport.wait(0.25), [])
        self.transport.import_handshake("me", self.transport.export_handshake())
        started = threading.Event()
        found = []

        def waiting():
            started.set()
            found.extend(self.transport.wait())

        # Longer than one slice of the wait.
        thread = threading.Thread(target=waiting)
        thread.start()
        started.wait()
        self.assertEqual(self.transport.wait(0.3, "somebody else"), [])
        number = self.transport.write_blocks("me", [0], [1])
        thread.join(PATIENCE_S)
        self.assertEqual([one.id for one in found], [number])

    def test_posted_reads(self):
        self.transport.import_handshake("me", self.transport.export_handshake())
        number = self.transport.post_read("me", [1], [2])
        state = until(lambda: (one := self.transport.check_xfer_state(number)).done and one)
        self.assertEqual((state.id, state.code, str(state)), (number, 0, "DONE"))
        self.assertEqual((state.failed, state.in_progress), (False, False))
        self.assertEqual(state.status, dt.Status.OK)
        self.transport.release_xfer(number)
        self.assertRaises(dt.NotFound, self.transport.release_xfer, number)
        self.assertRaises(dt.NotFound, self.transport.check_xfer_state, number)
        self.assertEqual(self.transport.get_new_notifs(), [])
        with self.assertRaisesRegex(dt.Cancelled, "transfer 3 ended"):
            dt.XferState(3, dt.Status.CANCELLED).raise_for_status()
        running = dt.XferState(3, 1)
        self.assertEqual((running.done, running.in_progress, running.failed), (False, True, False))
        self.assertEqual((running.status, str(running)), (dt.Status.OK, "PROC"))
        running.raise_for_status()
        self.assertEqual(str(dt.XferState(3, -10)), "DT_ERR_CANCELLED")
        self.assertEqual(dt.XferState(3, -99).status, -99)

    def test_what_a_transport_says_of_itself(self):
        config = {"model": "m", "dtype": "bfloat16"}
        transport = dt.Transport(
            bytearray(8 * LENGTH), LENGTH, backend="local", agent_name="ä", config=config
        )
        with transport:
            self.assertEqual(transport.agent_name, "ä")
            self.assertIs(transport.backend, dt.Backend.LOCAL)
            self.assertEqual((transport.num_blocks, transport.block_len), (8, LENGTH))
            wanted = dt.compute_fingerprint('{"dtype": "bfloat16",\n "model":"m"}')
            self.assertEqual(transport.config_fingerprint, wanted)
            with dt.Transport(bytearray(8), 8, backend="local", config={"model": "n"}) as other:
                with self.assertRaisesRegex(dt.Incompatible, wanted):
                    other.import_handshake("p", transport.export_handshake())
        self.assertEqual(transport.agent_name, "ä")
        self.assertIn("closed", repr(transport))


if __name__ == "__main__":
    unittest.main()
