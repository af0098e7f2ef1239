# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""Memory of regions and buffers: how long it lives, and who may take it away."""

import array
import ctypes
import gc
import mmap
import os
import pickle
import copy
import sys
import unittest

import datatransport as dt
from pattern import pattern
from support import PATIENCE_S, Peer, numpy_or_skip, run

LENGTH = 4096


def is_mapped(address):
    with open("/proc/self/maps") as maps:
        spans = [line.split()[0].split("-") for line in maps]
    return any(int(first, 16) <= address < int(last, 16) for first, last in spans)


def loopback(memory, block_len=LENGTH, **options):
    transport = dt.Transport(memory, block_len, backend="local", **options)
    transport.import_handshake("me", transport.export_handshake())
    return transport


class Regions(unittest.TestCase):
    def test_memory_goes_back_with_its_last_user(self):
        region = dt.Region(8 * LENGTH)
        address, fd = region.address, region.fileno()
        transport = loopback(region)
        view = region.view()[LENGTH : 2 * LENGTH]
        block = transport.block(1)
        region.close()
        del region
        gc.collect()
        # The transport and the views have it.
        self.assertTrue(is_mapped(address))
        transport.block(0)[:] = b"x" * LENGTH
        transport.write_blocks("me", [0], [1])
        self.assertTrue(transport.wait(PATIENCE_S)[0].ok)
        transport.close()
        self.assertEqual((bytes(view[:3]), bytes(block[:3])), (b"xxx", b"xxx"))
        del view
        self.assertTrue(is_mapped(address))
        self.assertEqual(bytes(block), b"x" * LENGTH)
        del block
        gc.collect()
        self.assertFalse(is_mapped(address))
        self.assertRaises(OSError, os.fstat, fd)

    def test_numpy_arrays_keep_it(self):
        numpy = numpy_or_skip()
        region = dt.Region(8 * LENGTH)
        address = region.address
        part = region.numpy("float32", (8, -1))[3].reshape(32, 32)[4:]
        region.close()
        del region
        gc.collect()
        part[:] = 1.5
        self.assertEqual(float(part.sum()), 1.5 * part.size)
        self.assertEqual(part.dtype, numpy.float32)
        self.assertTrue(is_mapped(address))
        del part
        gc.collect()
        self.assertFalse(is_mapped(address))

    def test_a_transport_alone_keeps_it(self):
        with dt.Region(8 * LENGTH) as region:
            address = region.address
            transport = loopback(region)
        self.assertTrue(region.closed)
        self.assertRaises(dt.InvalidArgument, region.view)
        self.assertRaises(dt.InvalidArgument, region.fileno)
        self.assertRaises(dt.InvalidArgument, dt.Transport, region, LENGTH)
        self.assertTrue(is_mapped(address))
        # Without close(): its finalizer closes it first.
        del transport
        gc.collect()
        self.assertFalse(is_mapped(address))

    def test_a_cycle_is_no_leak(self):
        region = dt.Region(LENGTH)
        address = region.address
        transport = loopback(region)
        transport.itself, transport.region = transport, region
        del transport, region
        gc.collect()
        self.assertFalse(is_mapped(address))

    def test_zeroed_and_of_the_size_asked_for(self):
        region = dt.Region(5000)
        self.assertEqual((len(region), region.nbytes, region.view().nbytes), (5000, 5000, 5000))
        self.assertEqual(bytes(region.view()), bytes(5000))
        self.assertEqual(region.view().format, "B")
        self.assertFalse(region.view().readonly)

    def test_a_view_is_the_callers(self):
        region = dt.Region(2 * LENGTH)
        with region.view() as view:
            view[LENGTH] = 7
        self.assertEqual(region.view()[LENGTH], 7)
        with loopback(region) as transport:
            self.assertEqual(transport.block(1)[0], 7)

    def test_it_is_a_buffer(self):
        region = dt.Region(100)
        if sys.version_info < (3, 12):
            # No class of Python could be one then.
            self.assertRaises(TypeError, memoryview, region)
            return
        memoryview(region)[3:6] = b"abc"
        self.assertEqual(bytes(region)[2:7], b"\0abc\0")

    def test_parts_of_a_region_are_mapped_by_peers(self):
        numpy = numpy_or_skip()
        region = dt.Region(10 * LENGTH)
        parts = {
            "the whole": region,
            "a view": region.view()[LENGTH : 5 * LENGTH],
            "an array": region.numpy("uint16", (10, -1))[2:6],
        }
        # As a peer sees it: what the log says of the way.
        source = (
            "import sys, datatransport as dt\n"
            "t = dt.Transport(bytearray(4096), 4096, backend='local')\n"
            "t.import_handshake('p', bytes.fromhex(sys.argv[1]))\n"
            "t.read_blocks('p', [0], [3]); t.wait(60)\n"
            "print(bytes(t.block(0)).hex())\n"
        )
        self.assertTrue(numpy.shares_memory(parts["an array"], region.numpy()))
        for name, part in parts.items():
            with self.subTest(name), dt.Transport(part, LENGTH, backend="local") as transport:
                transport.block(3)[:] = pattern(name, 3, LENGTH)
                out, log, _ = run(source, transport.export_handshake().hex(), log="info")
                self.assertEqual(out.strip(), pattern(name, 3, LENGTH).hex())
                self.assertIn("memory is mapped", log)

    def test_bad_sizes(self):
        for size in (0, -1, 2**64, 2**63, 2**70):
            with self.subTest(size), self.assertRaises(dt.DataTransportError):
                dt.Region(size)
        for size in (1.5, "1", None, b"1", float("nan")):
            with self.subTest(size), self.assertRaises(TypeError):
                dt.Region(size)

    def test_neither_is_copied(self):
        region = dt.Region(LENGTH)
        with loopback(region) as transport:
            for one in (region, transport):
                self.assertRaises(TypeError, pickle.dumps, one)
                self.assertRaises(TypeError, copy.copy, one)
                self.assertRaises(TypeError, copy.deepcopy, one)


class Buffers(unittest.TestCase):
    def moved(self, memory, block_len, as_bytes):
        """Copies block 1 to block 0 and compares what the buffer itself says."""
        with loopback(memory, block_len) as transport:
            transport.block(1)[:] = pattern("buffer", 1, block_len)
            transport.write_blocks("me", [1], [0])
            self.assertTrue(transport.wait(PATIENCE_S)[0].ok)
        self.assertEqual(as_bytes()[:block_len], pattern("buffer", 1, block_len))

    def test_all_kinds(self):
        some = bytearray(64)
        self.moved(some, 16, lambda: bytes(some))
        words = array.array("d", [0.0] * 8)
        self.moved(words, 16, words.tobytes)
        pages = mmap.mmap(-1, 4 * LENGTH)
        self.moved(pages, LENGTH, lambda: pages[:])
        numbers = (ctypes.c_uint32 * 16)()
        self.moved(numbers, 16, lambda: bytes(numbers))
        part = bytearray(100)
        self.moved(memoryview(part)[10:74], 16, lambda: bytes(part[10:]))
        rows = memoryview(bytearray(64)).cast("I", (4, 4))
        self.moved(rows, 16, rows.tobytes)

    def test_arrays_of_numpy(self):
        numpy = numpy_or_skip()
        for kind in ("u1", "f2", ">u4", "c16", "?", [("a", "i4"), ("b", "u1", 4)]):
            with self.subTest(kind):
                values = numpy.zeros((8, 16), kind)
                self.moved(values, values[0].nbytes, values.tobytes)

    def test_a_bytearray_cannot_be_resized_meanwhile(self):
        memory = bytearray(8 * LENGTH)
        transport = loopback(memory)
        self.assertRaises(BufferError, memory.extend, b"more")
        transport.close()
        memory.extend(b"more")

    def test_an_mmap_cannot_be_closed_meanwhile(self):
        memory = mmap.mmap(-1, 8 * LENGTH)
        transport = loopback(memory)
        self.assertRaises(BufferError, memory.close)
        transport.close()
        memory.close()

    def test_a_buffer_that_nobody_else_has_lives_on(self):
        transport = loopback(memoryview(bytearray(8 * LENGTH)))
        gc.collect()
        transport.block(0)[:] = pattern("gone", 0, LENGTH)
        transport.write_blocks("me", [0], [7])
        self.assertTrue(transport.wait(PATIENCE_S)[0].ok)
        self.assertEqual(bytes(transport.block(7)), pattern("gone", 0, LENGTH))
        transport.close()

    def test_own_memory_files(self):
        fd = os.memfd_create("blocks", os.MFD_CLOEXEC | os.MFD_ALLOW_SEALING)
        self.addCleanup(os.close, fd)
        os.ftruncate(fd, 16 * LENGTH)
        memory = mmap.mmap(fd, 8 * LENGTH, offset=8 * LENGTH)
        options = {"region_fd": fd, "region_offset": 8 * LENGTH}
        with dt.Transport(memory, LENGTH, backend="local", **options) as transport:
            with Peer("local", "file") as peer:
                peer.ask("import_handshake", peer="us", blob=transport.export_handshake().hex())
        options["region_offset"] = 9 * LENGTH
        with self.assertRaises(dt.InvalidArgument):
            dt.Transport(memory, LENGTH, backend="local", **options)

    def test_what_cannot_be_memory(self):
        some = memoryview(bytearray(64))
        for memory in (bytes(64), some.toreadonly(), some[::2], some[:0], bytearray()):
            with self.subTest(memory), self.assertRaises(dt.InvalidArgument):
                dt.Transport(memory, 16, backend="local")
        class Named(ctypes.Structure):
            _fields_ = [("O", ctypes.c_uint64)]

        class Objects(ctypes.Structure):
            _fields_ = [("a", ctypes.c_uint64), ("b", ctypes.py_object)]

        # Peers would write over the pointers.
        for memory in ((ctypes.py_object * 8)(), (Objects * 4)()):
            with self.subTest(memory), self.assertRaises(dt.InvalidArgument):
                dt.Transport(memory, 16, backend="local")
        dt.Transport((Named * 8)(), 16, backend="local").close()
        for memory in (None, 5, "text", [0] * 64, object()):
            with self.subTest(memory), self.assertRaises(TypeError):
                dt.Transport(memory, 16, backend="local")

    def test_numbers_of_blocks(self):
        with dt.Transport(bytearray(100), 16, num_blocks=6, backend="local") as transport:
            self.assertEqual(transport.num_blocks, 6)
            self.assertEqual(len(transport.block(5)), 16)
            self.assertRaises(IndexError, transport.block, 6)
            self.assertRaises(dt.InvalidArgument, transport.block, -1)
        self.assertRaises(dt.Closed, transport.block, 0)
        for wrong in ({"block_len": 0}, {"block_len": 16}, {"block_len": 16, "num_blocks": 7}):
            with self.subTest(wrong), self.assertRaises(dt.InvalidArgument):
                dt.Transport(bytearray(100), backend="local", **wrong)


if __name__ == "__main__":
    unittest.main()
