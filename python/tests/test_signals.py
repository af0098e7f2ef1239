# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""Handlers of signals that raise, wherever they do it: nothing is lost, and nothing is left behind."""

import ctypes
import gc
import logging
import os
import signal
import sys
import unittest
import unittest.mock

import datatransport as dt
from datatransport import _abi, log
from datatransport._library import lib
from datatransport.vllm import NixlTransport
from support import PATIENCE_S, run, skip, until

LENGTH = 4096


class Interrupted:
    """The library, but a handler raises when a call has returned, before its caller has seen what it gave."""

    def __init__(self, names=()):
        self.names = names

    def __getattr__(self, name):
        real = getattr(lib, name)
        if self.names and name not in self.names:
            return real

        def call(*arguments):
            status = real(*arguments)
            signal.raise_signal(signal.SIGUSR1)
            return status

        return call


class Signals(unittest.TestCase):
    def setUp(self):
        def interrupt(*_):
            raise KeyboardInterrupt

        before = signal.signal(signal.SIGUSR1, interrupt)
        self.addCleanup(signal.signal, signal.SIGUSR1, before)

    def interrupted(self, function, *arguments, module="transport", names=()):
        with unittest.mock.patch(f"datatransport.{module}.lib", Interrupted(names)):
            self.assertRaises(KeyboardInterrupt, function, *arguments)

    def transport(self, *names):
        t = dt.Transport(dt.Region(8 * LENGTH), LENGTH, backend="local")
        self.addCleanup(t.close)
        for name in names:
            t.import_handshake(name, t.export_handshake())
        return t

    def test_what_was_reported_comes_again(self):
        t = self.transport("me", "us")
        ids = [t.write_blocks("me", [0], [1]) for _ in range(5)]
        until(lambda: not t.stats().inflight, lambda: t.poll(limit=0))
        self.interrupted(t.poll)
        self.assertEqual(t.poll(limit=0), [])
        # Of which peer they are is not known any more.
        self.assertEqual(t.poll("me"), [])
        found = [one.id for one in t.poll(limit=2) + t.wait(0, limit=1) + t.poll()]
        self.assertEqual(found, ids)
        self.assertEqual(t.poll(), [])

        last = t.write_blocks("us", [0], [1])
        self.interrupted(t.wait, PATIENCE_S, "us")
        self.assertEqual(t.poll("me"), [])
        self.assertEqual([one.id for one in t.poll("us")], [last])

        for text in (b"a", b"b", b"c"):
            t.send_notif("me", text)
        self.interrupted(t.get_new_notifs)
        found = []
        until(lambda: len(found) == 3, lambda: found.extend(t.get_new_notifs(2)))
        self.assertEqual([one.message for one in found], [b"a", b"b", b"c"])
        self.assertEqual(t.get_new_notifs(), [])

    def test_what_was_begun_is_given_up(self):
        t = self.transport("me")
        for begun, function in enumerate((t.write_blocks, t.read_blocks, t.post_read)):
            with self.subTest(function.__name__):
                # Twice: the next one interrupts what gives it up, too.
                self.interrupted(function, "me", [0], [1])
                self.assertEqual(t.stats().submitted, begun + 1)
                self.assertEqual(t.stats().inflight, 0)
                self.assertEqual(t.poll(), [])
                self.assertRaises(dt.NotFound, t.check_xfer_state, begun + 1)

    def test_what_was_made_is_ended(self):
        def descriptors():
            gc.collect()
            return len(os.listdir("/proc/self/fd"))

        memory = bytearray(64)
        before = descriptors()
        self.interrupted(lambda: dt.Transport(memory, 64, backend="local"), names=["dt_create"])
        self.interrupted(dt.Region, LENGTH, module="region", names=["dt_region_alloc"])
        self.assertEqual(descriptors(), before)
        # Nothing has it any more.
        memory.append(0)

    def test_a_finalizer_that_is_interrupted(self):
        memory = bytearray(64)
        t = dt.Transport(memory, 64, backend="local")
        with unittest.mock.patch("sys.unraisablehook") as hook:
            with unittest.mock.patch("datatransport._handle.lib", Interrupted(["dt_close"])):
                del t
        self.assertIs(hook.call_args[0][0].exc_type, KeyboardInterrupt)
        memory.append(0)

    def test_memory_stays_where_a_finalizer_did_not_get_to_it(self):
        memory = bytearray(64)
        t = dt.Transport(memory, 64, backend="local")
        blob = t.export_handshake()
        raised = []
        # The traceback is not kept: it has all that the finalizer had.
        with unittest.mock.patch("sys.unraisablehook", lambda one: raised.append(one.exc_type)):
            with unittest.mock.patch("datatransport._handle.apart", side_effect=KeyboardInterrupt):
                del t
        self.assertEqual(raised, [KeyboardInterrupt])
        gc.collect()
        # Nor does another transport take its place.
        for _ in range(50):
            self.addCleanup(dt.Transport(bytearray(64), 64, backend="local").close)
        # It is open still, and peers may write.
        with dt.Transport(bytearray(b"a" * 64), 64, backend="local") as peer:
            peer.import_handshake("it", blob)
            peer.write_blocks("it", [0], [0])
            self.assertTrue(peer.wait(PATIENCE_S)[0].ok)
        self.assertEqual(memory, b"a" * 64)
        self.assertRaises(BufferError, memory.append, 0)

    def test_a_signal_that_came_before_a_message(self):
        # During the call of the library that has the message; the handler runs when Python begins.
        dt.log_to(logging.Logger("any"))
        self.addCleanup(dt.log_off)
        message = _abi.LOG_FUNCTION(log._callback.value)
        raised = map(ctypes.CDLL(None)["raise"], [signal.SIGUSR1])
        # One call of what is not written in Python: nothing else runs the handler.
        [].extend(map(message, raised, [b"text"], [None]))
        self.assertRaises(KeyboardInterrupt, dt.compute_fingerprint, {})
        dt.compute_fingerprint({})

    def test_the_hook_of_others_stays(self):
        class Failing(logging.Logger):
            def log(self, *arguments):
                raise RuntimeError("of the logger")

        def theirs(unraisable):
            seen.append(str(unraisable.exc_value))
            before(unraisable)

        seen = []
        with unittest.mock.patch("sys.unraisablehook") as first:
            for _ in range(2):
                dt.log_to(Failing("failing"), logging.INFO)
            before, sys.unraisablehook = sys.unraisablehook, theirs
            # Theirs calls ours, and ours must not call theirs.
            dt.log_to(Failing("failing"), logging.INFO)
            self.transport()
            self.assertEqual(seen, ["of the logger"])
            self.assertEqual(first.call_count, 1)
            dt.log_off()
            self.assertIs(sys.unraisablehook, theirs)
            sys.unraisablehook = before
            dt.log_off()
            self.assertIs(sys.unraisablehook, first)

    def storm(self, program):
        # Handlers run where they like, and up to three in one call, also in what makes up for the first.
        if sys.version_info < (3, 11):
            skip("before Python 3.11 signals are handled at more places, and a few lose something")
        self.assertEqual(run(program), ("balanced\n", "", 0))

    def test_what_a_poll_has_not_told_is_forgotten_by_cancel(self):
        memory = memoryview(bytearray(2 * LENGTH)).cast("B", (2, LENGTH))
        push = NixlTransport("push", memory, backends=["LOCAL"])
        self.addCleanup(push.close)
        push.add_remote_peer("me", push.get_agent_metadata(), push.base_addr, 2, LENGTH)
        ids = [push.write_blocks("me", [0], [1]) for _ in range(4)]

        def interrupted():
            with unittest.mock.patch.object(push, "_of", side_effect=KeyboardInterrupt):
                self.assertRaises(KeyboardInterrupt, push.poll)

        until(lambda: not push._inflight, interrupted)
        self.assertEqual(push.cancel(ids[:1]), [])
        self.assertEqual(push.cancel(iter(ids[2:3]), mode="wait"), [])
        self.assertEqual(push.poll("me").done, [ids[1], ids[3]])

    def test_a_storm(self):
        self.storm(STORM + TRANSPORT)

    def test_a_storm_over_the_classes_for_vllm(self):
        self.storm(STORM + VLLM)


# What the programs have in common. Each has `steps`, which it runs until enough was interrupted.
STORM = """
import ctypes, mmap, signal, time
import datatransport as dt

budget = hits = 0

def interrupt(*_):
    global budget, hits
    if budget:
        budget -= 1
        hits += 1
        raise KeyboardInterrupt

def storm(steps, most, enough):
    global budget
    n = 0
    signal.signal(signal.SIGALRM, interrupt)
    signal.setitimer(signal.ITIMER_REAL, 0.00005, 0.00005)
    while not enough():
        n += 1
        try:
            budget = n // len(steps) % (most + 1)
            steps[n % len(steps)](n)
            budget = 0
        except KeyboardInterrupt:
            budget = 0
    signal.setitimer(signal.ITIMER_REAL, 0)

def same(found, wanted):
    assert sorted(found) == sorted(wanted), (len(found), len(wanted), set(found) ^ set(wanted))

def are_known(texts, sent):
    # Whether one was sent that an exception came from, nobody knows.
    assert len(texts) == len(set(texts)) and set(sent) <= set(texts), (len(texts), len(sent))
"""
TRANSPORT = """
t = dt.Transport(dt.Region(8 * 4096), 4096, backend="local")
t.import_handshake("me", t.export_handshake())
t.block(0)[:] = bytes(range(256)) * 16
given, reads, sent, reported, messages = [], [], [], [], []

def send(n):
    t.send_notif("me", b"%d" % n)
    sent.append(n)

storm(
    [
        # What is called is looked up first: nothing comes between the return of the one and the other.
        lambda n: given.append(t.write_blocks("me", [0], [1], n)),
        lambda n: given.append(t.read_blocks("me", [2], [0], n)),
        lambda n: reads.append(t.post_read("me", [3], [0])),
        send,
        lambda n: reported.extend(t.poll(limit=3)),
        lambda n: reported.extend(t.wait(0, limit=2)),
        lambda n: messages.extend(t.get_new_notifs(2)),
    ],
    3,
    lambda: hits >= 4000 and t.stats().submitted - len(given) - len(reads) >= 300,
)
while t.stats().inflight:
    t.poll(limit=0)
while more := t.poll():
    reported += more
while more := t.get_new_notifs():
    messages += more
same([one.id for one in reported], given)
assert all(one.ok for one in reported)
known = set(reads)
for number in range(1, t.stats().submitted + 1):
    try:
        t.release_xfer(number)
        assert number in known, f"{number} is nobody's"
    except dt.NotFound:
        assert number not in known, f"{number} was taken away"
are_known([int(one.message) for one in messages], sent)
for index in 1, 2, 3:
    assert t.block(index) == t.block(0)
print("balanced")
"""
VLLM = """
import os
os.environ["DT_BACKEND"] = "local"
from datatransport.vllm import NixlDataTransport, NixlTransport

memory = memoryview(mmap.mmap(-1, 8 * 4096)).cast("B", (8, 4096))
base = ctypes.addressof(ctypes.c_char.from_buffer(memory))
push = NixlTransport("push", memory, backends=["LOCAL"])
pull = NixlDataTransport("pull", base, 8, 4096, 8 * 4096)
for name in "me", "us":
    push.add_remote_peer(name, push.get_agent_metadata(), base, 8, 4096)
me = pull.add_remote_peer(pull.get_agent_metadata(), pull.get_mem_descriptor())
given, reads, done, taken = {"me": [], "us": []}, [], {"me": [], "us": []}, []

storm(
    [
        lambda n: given["me"].append(push.write_blocks("me", [0], [1])),
        lambda n: given["us"].append(push.write_blocks("us", [0], [2])),
        lambda n: reads.append((pull.post_read([3], me, [0], b"%d" % n), n)),
        lambda n: done["me"].append(push.poll("me").done),
        lambda n: done["us"].append(push.poll("us").done),
        lambda n: taken.append(pull.get_new_notifs()),
    ],
    1,
    lambda: hits >= 3000,
)
while push._transport.stats().inflight:
    push.poll("nobody")
for name in given:
    done[name].append(push.poll(name).done)
    same([number for some in done[name] for number in some], given[name])
assert not push._inflight
for handle, _ in reads:
    assert pull.check_xfer_state(handle) == "DONE"
taken.append(pull.get_new_notifs())
texts = [int(text) for one in taken for each in one.values() for text in each]
are_known(texts, [n for _, n in reads])
submitted = pull._transport.stats().submitted
assert submitted > len(reads), "nothing was interrupted"
for number in set(range(1, submitted + 1)).difference(handle for handle, _ in reads):
    try:
        pull.check_xfer_state(number)
        raise AssertionError(f"{number} is nobody's")
    except dt.NotFound:
        pass
print("balanced")
"""


if __name__ == "__main__":
    unittest.main()
