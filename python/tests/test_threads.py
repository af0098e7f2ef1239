# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""Threads, forks, Ctrl-C, and how a process ends."""

import os
import signal
import threading
import time
import unittest

import datatransport as dt
from support import PATIENCE_S, Peer, finish, run, start, until

LENGTH = 4096
# What the programs below begin with.
OPEN = (
    "import os, sys, threading, time, gc, logging, signal\n"
    "import datatransport as dt\n"
    "region = dt.Region(8 * 4096)\n"
    "t = dt.Transport(region, 4096, backend=sys.argv[1])\n"
)


class Threads(unittest.TestCase):
    def test_every_id_once_over_all_threads(self):
        t = dt.Transport(dt.Region(64 * LENGTH), LENGTH, backend="local")
        t.import_handshake("me", t.export_handshake())
        given, ended, failed = [], [], []
        submitting = threading.Event()

        def submit(k):
            for n in range(200):
                given.append(t.write_blocks("me", [k, k + 1], [32 + k, 33 + k], n))

        def poll(wait):
            while not submitting.is_set() or t.stats().inflight or len(ended) < len(given):
                ended.extend(one.id for one in (t.wait(0.01) if wait else t.poll()))

        def guarded(function, argument):
            try:
                function(argument)
            except BaseException as error:
                failed.append(error)

        first = [threading.Thread(target=guarded, args=(submit, 4 * k)) for k in range(4)]
        second = [threading.Thread(target=guarded, args=(poll, k % 2)) for k in range(4)]
        for thread in first + second:
            thread.start()
        for thread in first:
            thread.join(PATIENCE_S)
        submitting.set()
        for thread in second:
            thread.join(PATIENCE_S)
        self.assertEqual(failed, [])
        self.assertEqual(len(given), 800)
        self.assertEqual(sorted(ended), sorted(given))
        t.close()

    def ended_while_others_call(self, end):
        """Threads in all kinds of calls get Closed, and the handle outlives the last of them."""
        t = dt.Transport(bytearray(8 * LENGTH), LENGTH, backend="local")
        t.import_handshake("me", t.export_handshake())
        results = []

        def calling(function, *arguments):
            try:
                while True:
                    function(*arguments)
            except Exception as error:
                results.append(error)

        calls = (
            (t.wait,),
            (t.poll,),
            (t.get_new_notifs,),
            (t.write_blocks, "me", [0], [1]),
            (t.export_handshake,),
        )
        threads = [threading.Thread(target=calling, args=call) for call in calls]
        for thread in threads:
            thread.start()
        until(lambda: t.stats().done > 3)
        end(t)
        for thread in threads:
            thread.join(PATIENCE_S)
        self.assertEqual([type(one) for one in results], [dt.Closed] * len(calls), results)

    def test_close_while_others_call(self):
        for _ in range(10):
            self.ended_while_others_call(lambda t: t.close())

    def test_destroy_while_others_call(self):
        for _ in range(10):
            self.ended_while_others_call(lambda t: t.destroy())

    def test_all_at_once(self):
        for _ in range(10):
            t = dt.Transport(bytearray(8 * LENGTH), LENGTH, backend="local")
            threads = [threading.Thread(target=t.close) for _ in range(3)]
            threads += [threading.Thread(target=t.destroy) for _ in range(3)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join(PATIENCE_S)
            self.assertRaises(dt.Closed, t.poll)

    def test_a_call_does_not_stop_other_threads(self):
        t = dt.Transport(bytearray(64), 64, backend="local")
        inside = threading.Event()
        seen = []

        def waiting():
            inside.set()
            seen.append(t.wait())

        thread = threading.Thread(target=waiting)
        thread.start()
        inside.wait()
        # Its wait has no end, so if it had the interpreter to itself, this would not be reached.
        t.import_handshake("me", t.export_handshake())
        t.write_blocks("me", [0], [0])
        thread.join(PATIENCE_S)
        self.assertEqual(len(seen), 1)
        t.close()


class Forks(unittest.TestCase):
    def test_a_child_cannot_use_what_it_inherits(self):
        source = OPEN + (
            "t.block(0)[:5] = b'hello'\n"
            "if sys.argv[1] == 'local': t.import_handshake('me', t.export_handshake())\n"
            "pid = os.fork()\n"
            "if pid == 0:\n"
            "    for call in (t.poll, t.wait, t.stats, t.export_handshake, t.get_new_notifs):\n"
            "        try: call()\n"
            "        except dt.Forked: pass\n"
            "        else: os._exit(3)\n"
            "    if bytes(region.view()[:5]) != b'hello' or t.num_blocks != 8: os._exit(4)\n"
            "    if sys.argv[2] == 'close': t.close()\n"
            "    if sys.argv[2] == 'with':\n"
            "        with t: sys.exit(0)\n"
            "    if sys.argv[2] == 'delete': del t; region.close(); gc.collect()\n"
            "    if sys.argv[1] == 'local':\n"
            "        with dt.Transport(bytearray(64), 64, backend='local') as own:\n"
            "            own.import_handshake('me', own.export_handshake())\n"
            "            own.write_blocks('me', [0], [0])\n"
            "            if len(own.wait(60)) != 1: os._exit(5)\n"
            "    sys.exit(0)\n"
            "print(os.waitpid(pid, 0)[1])\n"
            "if sys.argv[1] == 'local':\n"
            "    t.write_blocks('me', [0], [1])\n"
            "    print(len(t.wait(60)), bytes(t.block(1)[:5]))\n"
            "t.close()\n"
        )
        programs = {
            (backend, then): start(source, backend, then, backend=backend)
            for backend, then in (
                ("local", "close"),
                ("local", "with"),
                ("local", "delete"),
                ("local", "nothing"),
                ("nixl", "with"),
                ("nixl", "delete"),
            )
        }
        for (backend, then), program in programs.items():
            with self.subTest(f"{backend} {then}"):
                wanted = "0\n1 b'hello'\n" if backend == "local" else "0\n"
                self.assertEqual(finish(program), (wanted, "", 0))

    def test_a_fork_while_threads_are_inside(self):
        source = OPEN + (
            "dt.log_to(level=logging.DEBUG)\n"
            "threads = [threading.Thread(target=t.wait, daemon=True) for _ in range(3)]\n"
            "for one in threads: one.start()\n"
            "for _ in range(10):\n"
            "    pid = os.fork()\n"
            "    if pid == 0:\n"
            "        try: t.poll()\n"
            "        except dt.Forked: pass\n"
            "        del t\n"
            "        gc.collect()\n"
            "        sys.exit(0)\n"
            "    status = os.waitpid(pid, 0)[1]\n"
            "    if status: print(status)\n"
        )
        self.assertEqual(run(source, "local")[::2], ("", 0))


class Ends(unittest.TestCase):
    def starts(self, source, backend="local"):
        return start(OPEN + source, "local" if backend == "local" else "nixl", backend=backend)

    def test_exits_with_an_open_transport(self):
        wanted = {
            "": 0,
            "sys.exit(3)": 3,
            "os._exit(4)": 4,
            "t.itself = t; sys.x = t; __builtins__.y = region": 0,
            "v = region.view(); del region, t": 0,
            "del dt; sys.modules.clear()": 0,
            "1 / 0": 1,
        }
        programs = {source: self.starts(source) for source in wanted}
        for source, program in programs.items():
            with self.subTest(source):
                out, log, status = finish(program)
                self.assertEqual((out, status), ("", wanted[source]), log)
                if source == "1 / 0":
                    self.assertIn("ZeroDivisionError", log)
                else:
                    self.assertEqual(log, "")

    def test_exits_with_an_open_transport_over_nixl(self):
        programs = [self.starts("", backend) for backend in ("nixl", "nixl_tcp")]
        self.assertEqual([finish(program) for program in programs], [("", "", 0)] * 2)

    def test_exits_while_threads_are_in_calls(self):
        # They get Closed when the interpreter ends, if they still run then.
        source = (
            "dt.log_to(level=logging.DEBUG)\n"
            "logging.basicConfig(level=logging.DEBUG, handlers=[logging.NullHandler()])\n"
            "t.import_handshake('me', t.export_handshake())\n"
            "def work(call, *arguments):\n"
            "    try:\n"
            "        while True: call(*arguments)\n"
            "    except dt.Closed: pass\n"
            "calls = [(t.wait,), (t.poll,), (t.write_blocks, 'me', [0], [1])] * 2\n"
            "for call in calls:\n"
            "    threading.Thread(target=work, args=call, daemon=True).start()\n"
            "while t.stats().done < 10: pass\n"
        )
        programs = [self.starts(source) for _ in range(4)]
        self.assertEqual([finish(program) for program in programs], [("", "", 0)] * 4)

    def test_open_transports_are_closed_at_the_end(self):
        # Of what was registered first, the turn is last.
        source = (
            "import atexit\n"
            "def after():\n"
            "    try: t.poll()\n"
            "    except dt.Closed: print('closed')\n"
            "atexit.register(after)\n"
        ) + OPEN
        self.assertEqual(run(source, "local"), ("closed\n", "", 0))

    def test_what_cannot_be_closed_at_the_end_is_waited_for_once(self):
        # However many there are, and their memory is there until the process has gone.
        source = (
            "from datatransport import _handle\n"
            "class Memory(bytearray):\n"
            # At the very end there is no `os` any more.
            "    def __del__(self, write=os.write): write(1, b'freed\\n')\n"
            "class Stuck:\n"
            "    def __getattr__(self, name):\n"
            "        return self.close if name == 'dt_close' else getattr(lib, name)\n"
            "    def close(self, handle, timeout_ms):\n"
            "        told.setdefault(id(handle), []).append(timeout_ms)\n"
            "        time.sleep(timeout_ms / 1000)\n"
            "        return dt.Status.TIMEOUT\n"
            "def after():\n"
            "    firsts = [times[0] for times in told.values()]\n"
            "    print(len(firsts), set(firsts), sum(map(sum, told.values())) <= 600)\n"
            "    sys.stdout.flush()\n"
            "    late.append(dt.Transport(Memory(64), 64, backend='local'))\n"
            "told, late, lib = {}, [], _handle.lib\n"
            "dt.Transport(Memory(64), 64, backend='local').close()\n"
            "_handle.lib = Stuck()\n"
            "many = [dt.Transport(Memory(64), 64, backend='local') for _ in range(int(sys.argv[2]))]\n"
        )
        # Of what was registered first, the turn is last.
        first = "import atexit\natexit.register(lambda: after())\n"
        programs = {count: start(first + OPEN + source, "local", str(count)) for count in (0, 300)}
        for count, program in programs.items():
            with self.subTest(count):
                # Besides those, there is the one of OPEN.
                wanted = f"freed\n{count + 1} {{0}} True\n"
                self.assertEqual(finish(program), (wanted, "", 0))

    def test_exits_while_a_peer_stands_still(self):
        with Peer("nixl_tcp", 1, num_blocks=64, block_len=1 << 20) as peer:
            source = (
                "t = dt.Transport(bytearray(64 << 20), 1 << 20, backend='nixl')\n"
                "t.import_handshake('p', bytes.fromhex(sys.argv[2]))\n"
                "t.write_blocks('p', [0], [0])\n"
                "t.wait()\n"
                "os.kill(int(sys.argv[3]), signal.SIGSTOP)\n"
                "for _ in range(4): t.write_blocks('p', range(64), range(64))\n"
                "t.poll()\n"
                "print(t.stats().inflight)\n"
            )
            arguments = ("nixl", peer.hello["handshake"], str(peer.pid))
            try:
                program = start(OPEN + source, *arguments, backend="nixl_tcp")
                self.assertEqual(finish(program), ("4\n", "", 0))
            finally:
                os.kill(peer.pid, signal.SIGCONT)

    def test_messages_arrive_though_nobody_closed(self):
        source = (
            "u = dt.Transport(bytearray(64), 64, backend=sys.argv[1], agent_name='u')\n"
            "t = dt.Transport(bytearray(64), 64, backend=sys.argv[1], agent_name='t')\n"
            "t.import_handshake('u', u.export_handshake())\n"
            "t.send_notif('u', b'last words')\n"
            "del t\n"
            "print(u.get_new_notifs())\n"
        )
        wanted = "[Notif(agent_name='t', message=b'last words')]\n"
        self.assertEqual(finish(self.starts(source)), (wanted, "", 0))

    def test_ctrl_c_ends_a_wait(self):
        source = (
            # What runs in the background is started with the signal ignored.
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "def tell():\n"
            "    while t.stats().polls == 0: time.sleep(0.001)\n"
            "    print('waiting', flush=True)\n"
            "try:\n"
            "    threading.Thread(target=tell).start()\n"
            "    t.wait()\n"
            "except KeyboardInterrupt: print('interrupted')\n"
            "t.close()\n"
        )
        process = self.starts(source)
        try:
            self.assertEqual(process.stdout.readline(), "waiting\n")
            process.send_signal(signal.SIGINT)
            self.assertEqual(finish(process), ("interrupted\n", "", 0))
        finally:
            process.kill()

    def test_a_close_that_cannot_end(self):
        # A peer that was stopped in the middle of a copy: as long as it is, memory must stay.
        source = (
            "import datatransport as dt, sys\n"
            "t = dt.Transport(dt.Region(16 << 20), 1 << 20, backend='local')\n"
            "t.import_handshake('p', bytes.fromhex(sys.argv[1]))\n"
            "print('ready', flush=True)\n"
            "try:\n"
            "    while True:\n"
            "        t.write_blocks('p', range(16), range(16))\n"
            "        t.wait()\n"
            "except dt.PeerLost: pass\n"
        )
        # Now and then it is stopped between two copies.
        for _ in range(20):
            t = dt.Transport(dt.Region(16 << 20), 1 << 20, backend="local")
            peer = start(source, t.export_handshake().hex())
            try:
                self.assertEqual(peer.stdout.readline(), "ready\n")
                os.kill(peer.pid, signal.SIGSTOP)
                until(lambda: self.is_stopped(peer.pid))
                started = time.monotonic()
                try:
                    t.close(0.3)
                    continue
                except dt.Timeout as error:
                    text = str(error)
                    self.assertIsInstance(error, TimeoutError)
                self.assertGreaterEqual(time.monotonic() - started, 0.3)
                self.assertRegex(text, f"^not closed after 0.3 s: process {peer.pid} ")
                self.assertRaises(dt.Closed, t.poll)
                self.assertRaises(dt.Timeout, t.close, 0)
                os.kill(peer.pid, signal.SIGCONT)
                t.close(PATIENCE_S)
                self.assertEqual(finish(peer), ("", "", 0))
                return
            finally:
                peer.kill()
                peer.communicate()
        self.fail("the peer was never in the middle of a copy")

    def is_stopped(self, pid):
        with open(f"/proc/{pid}/stat") as file:
            return file.read().rsplit(")", 1)[1].split()[0] == "T"


if __name__ == "__main__":
    unittest.main()
