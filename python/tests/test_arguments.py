# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""Hostile arguments: each is refused with an exception, and nothing else becomes of it."""

import array
import collections
import decimal
import fractions
import math
import os
import pickle
import shutil
import subprocess
import sys
import tempfile
import types
import unittest

import datatransport as dt
from datatransport import errors
from support import PATIENCE_S, ROOT, finish, numpy_or_skip, start

LENGTH = 64


class Long(int):
    """Of more digits than Python makes a text of."""

    def __repr__(self):
        return f"Long of {self.bit_length()} bits"


LONG = Long(10**5000)
JUNK = (None, 1.5, math.nan, "1", b"1", object(), [1], {}, 1j)
NO_TEXT = (None, 1, 1.5, b"me", ["me"], object())
BAD_TEXT = ("", "x" * 1001, "a\0b", "\ud800")
NO_BYTES = (None, 1, 1.5, "text", [1, 2], object())
NOT_64_BITS = (-1, 2**64, 2**200, LONG)


class Hostile(unittest.TestCase):
    def setUp(self):
        self.t = dt.Transport(bytearray(8 * LENGTH), LENGTH, backend="local")
        self.addCleanup(self.t.close)
        self.blob = self.t.export_handshake()
        self.t.import_handshake("me", self.blob)
        self.before = self.t.stats()

    def unchanged(self):
        after = self.t.stats()
        self.assertEqual((after.submitted, after.peers), (self.before.submitted, 1))

    def refused(self, kinds, function, *arguments, **options):
        with self.subTest(f"{function.__name__} {arguments!r:.200} {options!r:.200}"):
            self.assertRaises(kinds, function, *arguments, **options)

    def test_indexes(self):
        t = self.t
        for good in ([0], (0,), range(1), array.array("I", [0]), array.array("q", [0]), iter([0])):
            t.write_blocks("me", good, [1])
        for good in ({0: 1}, collections.deque([0]), memoryview(array.array("H", [0])), [True]):
            t.read_blocks("me", [1], good)
        for _ in range(10):
            self.assertTrue(t.wait(PATIENCE_S, limit=1)[0].ok)
        self.before = t.stats()
        lists = (t.write_blocks, t.read_blocks, t.post_read)
        for function in lists:
            for wrong in ([-1], [2**32], [2**64], [-(2**70)], [8], array.array("b", [-1]), (0, 9)):
                self.refused(dt.OutOfRange, function, "me", wrong, [0] * len(wrong))
                self.refused(IndexError, function, "me", [0] * len(wrong), wrong)
            for wrong in JUNK[:4] + (b"\0\0\0\0", bytearray(4), [None], [1.0], ["1"], [[1]]):
                if wrong != [1]:
                    self.refused(TypeError, function, "me", wrong, [0])
                    self.refused(TypeError, function, "me", [0], wrong)
            self.refused(TypeError, function, "me", memoryview(bytes(8)).cast("d"), [0])
            for wrong in ([LONG], [Long(-LONG)]):
                self.refused(dt.OutOfRange, function, "me", wrong, [0])
            self.refused(ValueError, function, "me", [], [])
            self.refused(ValueError, function, "me", [0, 1], [0])
            self.refused(ValueError, function, "me", [], [0])
        with self.assertRaisesRegex(dt.OutOfRange, r"remote_idxs\[2\] is -5,"):
            t.write_blocks("me", [0, 1, 2], [0, 1, -5])
        with self.assertRaisesRegex(dt.OutOfRange, r"local_idxs\[1\] is 8, .* 8 blocks"):
            t.write_blocks("me", [0, 8, 2], [0, 1, 2])
        with self.assertRaisesRegex(TypeError, r"remote_idxs\[1\] must be an integer, not float"):
            t.write_blocks("me", [0, 1], [0, 1.0])
        self.unchanged()

    def test_indexes_without_an_order(self):
        for wrong in ({0}, frozenset([0])):
            for lists in ((wrong, [0]), ([0], wrong)):
                for function in (self.t.write_blocks, self.t.read_blocks, self.t.post_read):
                    with self.assertRaisesRegex(TypeError, "has no order.*: give a list"):
                        function("me", *lists)
        self.unchanged()
        # Of ids it is all the same.
        self.assertEqual(self.t.cancel({2**63}), [])

    def test_what_the_callers_code_raises_is_left_alone(self):
        def generate():
            yield 0
            raise TypeError("of the generator")

        class Index:
            def __index__(self):
                raise TypeError("of the index")

        calls = (
            (self.t.write_blocks, "me", generate(), [0]),
            (self.t.post_read, "me", [0], generate()),
            (self.t.cancel, generate()),
            (self.t.write_blocks, "me", [0, Index()], [0, 1]),
            (self.t.write_blocks, "me", [0], [1], Index()),
            (self.t.cancel, [Index()]),
            (self.t.block, Index()),
        )
        for function, *arguments in calls:
            with self.assertRaisesRegex(TypeError, "^of the (generator|index)$"):
                function(*arguments)
        self.unchanged()

    def test_indexes_that_are_no_int(self):
        class Index:
            def __init__(self, value):
                self.value = value

            def __index__(self):
                return self.value

        self.t.write_blocks("me", [Index(0)], [Index(1)])
        self.assertTrue(self.t.wait(PATIENCE_S)[0].ok)
        self.before = self.t.stats()
        for wrong in (-1, 2**32, 2**70):
            self.refused(dt.OutOfRange, self.t.write_blocks, "me", [Index(wrong)], [0])
        self.unchanged()

    def test_indexes_of_numpy(self):
        numpy = numpy_or_skip()
        t = self.t
        kinds = ("u1", "i1", "<u2", ">u2", "i4", "u4", ">u4", "i8", "u8")
        for kind in kinds:
            source, target = numpy.array([0, 0, 3, 0, 5], kind)[::2], numpy.array([6, 2, 1], kind)
            for index in range(8):
                t.block(index)[:] = bytes([index]) * LENGTH
            t.write_blocks("me", source, target)
            self.assertTrue(t.wait(PATIENCE_S)[0].ok)
            found = [t.block(index)[0] for index in range(8)]
            self.assertEqual(found, [0, 5, 3, 3, 4, 5, 0, 7], kind)
        self.before = t.stats()
        for wrong in (
            numpy.array([-1], "i4"),
            numpy.array([0, -1, 2]),
            numpy.array([2**32]),
            numpy.array([2**64 - 1], "u8"),
        ):
            self.refused(dt.OutOfRange, t.write_blocks, "me", wrong, [0] * wrong.size)
        for wrong in (
            numpy.array([1.0]),
            numpy.array([True]),
            numpy.array(1),
            numpy.array([[1]]),
            numpy.array(["1"]),
            numpy.array([object()]),
            numpy.array([2**70]),
            numpy.array([1], "M8[s]"),
        ):
            self.refused(TypeError, t.write_blocks, "me", wrong, [0])
        with self.assertRaisesRegex(dt.OutOfRange, r"local_idxs\[2\] is -7,"):
            t.write_blocks("me", numpy.array([1, 2, -7, 3]), range(4))
        self.refused(ValueError, t.write_blocks, "me", numpy.array([], "u4"), [])
        self.assertEqual(t.cancel(numpy.array([1, 2])), [])
        self.assertEqual(t.cancel(numpy.uint64(2**64 - 1)), [])
        self.unchanged()

    def test_names_of_peers(self):
        t, blob = self.t, self.blob
        calls = (
            (t.write_blocks, [0], [1]),
            (t.read_blocks, [0], [1]),
            (t.post_read, [0], [1]),
            (t.send_notif, b"x"),
            (t.import_handshake, blob),
            (t.add_remote_peer, t.get_agent_metadata(), t.base_addr, 8),
            (t.remove_remote_peer,),
            (t.peer_status,),
            (lambda peer: t.poll(peer),),
            (lambda peer: t.wait(0, peer),),
        )
        for function, *rest in calls:
            for wrong in NO_TEXT[0 if function.__name__ != "<lambda>" else 1 :]:
                self.refused(TypeError, function, wrong, *rest)
            for wrong in BAD_TEXT:
                self.refused(ValueError, function, wrong, *rest)
        for function, *rest in calls[:4] + calls[6:8]:
            self.refused(LookupError, function, "nobody", *rest)
        self.unchanged()

    def test_blobs(self):
        t = self.t
        metadata, descriptor = t.get_agent_metadata(), t.get_mem_descriptor()
        for wrong in NO_BYTES:
            self.refused(TypeError, t.import_handshake, "p", wrong)
            self.refused(TypeError, t.add_remote_peer, "p", wrong, 4096, 1)
            self.refused(TypeError, t.add_remote_agent, wrong, descriptor)
            self.refused(TypeError, t.add_remote_agent, metadata, wrong)
            self.refused(TypeError, t.send_notif, "me", wrong)
            self.refused(TypeError, t.post_read, "me", [0], [1], wrong)
        for wrong in (b"", b"\0" * 100, self.blob[:-1], self.blob + b"\0", self.blob[::-1]):
            self.refused(dt.InvalidArgument, t.import_handshake, "p", wrong)
        for wrong in (b"", b"\xff" * 64, metadata[:5]):
            self.refused(dt.DataTransportError, t.add_remote_peer, "p", wrong, t.base_addr, 8)
            self.refused(dt.DataTransportError, t.add_remote_agent, wrong, descriptor)
        self.refused(dt.InvalidArgument, t.add_remote_agent, metadata, b"\xdd\xff\xff\xff\xff")
        self.refused(dt.InvalidArgument, t.send_notif, "me", b"")
        self.refused(dt.InvalidArgument, t.send_notif, "me", bytes(65537))
        self.refused(dt.InvalidArgument, t.post_read, "me", [0], [1], bytes(65537))
        self.assertEqual(t.get_new_notifs(), [])
        self.unchanged()

    def test_numbers(self):
        t = self.t
        metadata = t.get_agent_metadata()
        calls = (
            lambda x: t.write_blocks("me", [0], [1], x),
            lambda x: t.add_remote_peer("p", metadata, x, 8),
            lambda x: t.add_remote_peer("p", metadata, t.base_addr, x),
            lambda x: t.add_remote_peer("p", metadata, t.base_addr, 8, x or 0.5),
            lambda x: t.poll(limit=x),
            lambda x: t.wait(0, limit=x),
            lambda x: t.get_new_notifs(x),
            lambda x: t.check_xfer_state(x),
            lambda x: t.release_xfer(x),
            lambda x: t.cancel([x]),
            lambda x: t.block(x),
            lambda x: dt.Transport(bytearray(64), x),
            lambda x: dt.Transport(bytearray(64), 64, num_blocks=x or 0.5),
            lambda x: dt.Transport(bytearray(64), 64, backend="local", poll_budget_us=x),
            lambda x: dt.Transport(bytearray(64), 64, backend="local", nixl_num_threads=x),
            lambda x: dt.Transport(bytearray(64), 64, backend="local", region_fd=x or 0.5),
            lambda x: dt.Transport(bytearray(64), 64, backend="local", region_offset=x or 0.5),
            lambda x: dt.Transport(bytearray(64), 64, backend=x if x != "1" else None),
        )
        for function in calls:
            for wrong in JUNK:
                self.refused((TypeError, ValueError), function, wrong)
            for wrong in NOT_64_BITS:
                self.refused(ValueError, function, wrong)
        with self.assertRaisesRegex(ValueError, "^limit is an integer of 16610 bits, but must be"):
            t.poll(limit=LONG)
        # They are cut to what one call can give, and not wrapped around.
        self.assertEqual(t.poll(limit=2**64 - 1), [])
        self.assertEqual(t.get_new_notifs(2**64 - 1), [])
        self.refused(ValueError, t.wait, 0, limit=0)
        self.refused(LookupError, t.check_xfer_state, 2**64 - 1)
        self.refused(LookupError, t.release_xfer, 0)
        self.refused(ValueError, dt.Transport, bytearray(64), 64, backend="locale")
        self.refused(ValueError, dt.Transport, bytearray(64), 64, backend=7)
        self.refused(ValueError, dt.Transport, bytearray(64), 64, region_fd=2**31)
        self.unchanged()

    def test_times(self):
        for function in (self.t.wait, self.t.close):
            for wrong in (-1, -0.001, math.nan, -math.inf, -(10**400), Long(-LONG)):
                self.refused(ValueError, function, wrong)
            for wrong in ("text", b"1", [1], object()):
                self.refused((TypeError, ValueError), function, wrong)
        self.assertFalse(self.t.closed)
        # More than 32 bits of milliseconds, and more than a float can be.
        for long in (1e300, math.inf, 10**400, fractions.Fraction(10**400), decimal.Decimal(10)):
            self.t.write_blocks("me", [0], [1])
            self.assertEqual(len(self.t.wait(long)), 1)
        self.t.close(math.inf)

    def test_options(self):
        def create(**options):
            return dt.Transport(bytearray(64), 64, **{"backend": "local", **options})

        for name in ("agent_name", "nixl_plugin"):
            for wrong in NO_TEXT[1:]:
                self.refused(TypeError, create, **{name: wrong})
            self.refused(ValueError, create, **{name: "a\0b"})
        self.refused(ValueError, create, agent_name="x" * 1001)
        self.refused(ValueError, create, config="[]")
        self.refused(ValueError, create, config="{")
        self.refused(ValueError, create, config="{}\0")
        self.refused(TypeError, create, config={"a": object()})
        self.refused(ValueError, create, region_fd=10**6)
        with self.assertRaisesRegex(ValueError, "there is no region_fd"):
            create(region_offset=64)
        self.refused(TypeError, create, unknown=1)
        self.refused(dt.Unavailable, create, backend="nixl", nixl_lib_dir="/nowhere")
        create(config={}, agent_name="x" * 1000).close()

    def test_fingerprints(self):
        self.assertEqual(dt.compute_fingerprint({}), "")
        wanted = dt.compute_fingerprint('{"a":"\\u00e4","b":1}')
        mapping = {"b": 1, "a": "ä"}
        for config in (mapping, types.MappingProxyType(mapping), collections.ChainMap(mapping)):
            self.assertEqual(dt.compute_fingerprint(config), wanted)
        self.assertTrue(dt.fingerprints_compatible("", "ab"))
        self.assertFalse(dt.fingerprints_compatible("ab", "ac"))
        for wrong in ("", "[]", "{", "{}\0", "\ud800"):
            self.refused(ValueError, dt.compute_fingerprint, wrong)
        for wrong in (b"{}", 1, None, [object()]):
            self.refused((TypeError, ValueError), dt.compute_fingerprint, wrong)
        self.refused(TypeError, dt.fingerprints_compatible, None, "")
        self.refused(ValueError, dt.fingerprints_compatible, "a\0", "a")


class Errors(unittest.TestCase):
    def test_each_status_has_its_class(self):
        builtin = {
            dt.Status.INVALID_ARG: ValueError,
            dt.Status.OUT_OF_RANGE: IndexError,
            dt.Status.NOT_FOUND: LookupError,
            dt.Status.PEER_LOST: ConnectionError,
            dt.Status.TIMEOUT: TimeoutError,
            dt.Status.NO_MEMORY: MemoryError,
            dt.Status.FORKED: RuntimeError,
            dt.Status.INTERNAL: RuntimeError,
        }
        kinds = set()
        for status in dt.Status:
            if status == dt.Status.OK:
                continue
            found = errors.error(int(status), "the sentence")
            kinds.add(type(found))
            self.assertIsInstance(found, dt.DataTransportError)
            self.assertIsInstance(found, builtin.get(status, Exception))
            self.assertEqual((found.status, str(found)), (status, "the sentence"))
            self.assertEqual(errors.status_name(status), f"DT_ERR_{status.name}")
            # A pool of processes sends them to its parent.
            again = pickle.loads(pickle.dumps(found))
            self.assertEqual(
                (type(again), again.status, str(again)), (type(found), status, str(found))
            )
        self.assertEqual(len(kinds), len(dt.Status) - 1)

    def test_statuses_of_newer_libraries(self):
        found = errors.error(-99, "new")
        self.assertEqual((type(found), found.status), (dt.DataTransportError, -99))
        self.assertEqual(pickle.loads(pickle.dumps(found)).status, -99)

    def test_closed(self):
        t = dt.Transport(bytearray(64), 8, backend="local")
        t.import_handshake("me", t.export_handshake())
        t.close()
        t.close()
        t.close(0)
        self.assertTrue(t.closed)
        for function, *arguments in (
            (t.poll,),
            (t.wait,),
            (t.write_blocks, "me", [0], [1]),
            (t.export_handshake,),
            (t.get_new_notifs,),
            (t.block, 0),
            (t.cancel, 1),
            (t.peer_status, "me"),
        ):
            self.assertRaises(dt.Closed, function, *arguments)
        self.assertEqual(t.stats().submitted, 0)
        t.destroy()
        t.destroy()
        t.close()
        self.assertRaises(dt.Closed, t.stats)
        self.assertRaises(dt.Closed, t.poll)
        self.assertEqual(t.num_blocks, 8)

    def test_with_statement(self):
        with self.assertRaises(KeyError):
            with dt.Transport(bytearray(64), 8, backend="local") as t:
                raise KeyError
        self.assertTrue(t.closed)


class Loading(unittest.TestCase):
    def test_where_it_was_looked_for(self):
        # The package alone, without a source tree around it.
        source = (
            "import os, shutil, sys, tempfile\n"
            "os.environ.pop('DATATRANSPORT_LIBRARY')\n"
            "if sys.argv[2]: os.environ['DATATRANSPORT_LIBRARY'] = sys.argv[2]\n"
            "folder = tempfile.mkdtemp()\n"
            "shutil.copytree(sys.argv[1], folder + '/datatransport')\n"
            "sys.path.insert(0, folder)\n"
            "try:\n"
            "    import datatransport\n"
            "except ImportError as error:\n"
            "    print(error)\n"
            "shutil.rmtree(folder)\n"
        )
        package = str(ROOT / "python" / "datatransport")
        wrong = {
            "": "pkg-config",
            "/nowhere/lib.so": "there is no such file",
            __file__: "invalid ELF header",
            "libc.so.6": "there is no such file",
            self.other_library(): "has no dt_version",
            self.other_library("unsigned dt_version(void) { return 0x20000; }"): "version 2.0.0",
            self.other_library("unsigned dt_version(void) { return 0x00105; }"): "not complete",
            self.other_library("unsigned dt_version(void) { return 0x00005; }"): "version 0.0.5",
        }
        programs = {name: start(source, package, name) for name in wrong}
        for name, program in programs.items():
            with self.subTest(name):
                out, log, status = finish(program)
                self.assertEqual((log, status), ("", 0))
                if name:
                    self.assertIn("DATATRANSPORT_LIBRARY", out)
                    self.assertIn(wrong[name], out)
                    # Who names one wants no other.
                    self.assertNotIn("pkg-config", out)
                elif out:
                    for place in ("package", "dynamic loader", sys.prefix, "pkg-config", "Install"):
                        self.assertIn(place, out)
                else:
                    print("libdatatransport is installed here: no list of places to look at")

    def other_library(self, source=""):
        folder = tempfile.mkdtemp()
        self.addCleanup(shutil.rmtree, folder)
        path = os.path.join(folder, "other.so")
        command = ["cc", "-shared", "-fPIC", "-x", "c", "-", "-o", path]
        subprocess.run(command, input=source, text=True, check=True)
        return path

    def test_what_was_loaded(self):
        self.assertEqual(dt.library_path(), os.path.realpath(os.environ["DATATRANSPORT_LIBRARY"]))
        header = (ROOT / "include" / "dt.h").read_text()
        version = [
            int(header.split(f"#define DT_VERSION_{part} ")[1].split()[0])
            for part in ("MAJOR", "MINOR", "PATCH")
        ]
        self.assertEqual(dt.library_version(), tuple(version))
        self.assertEqual(dt.__version__, ".".join(map(str, version)))
        project = (ROOT / "python" / "pyproject.toml").read_text()
        self.assertIn(f'\nversion = "{dt.__version__}"\n', project)


if __name__ == "__main__":
    unittest.main()
