# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""datatransport.vllm.NixlDataTransport beside vLLM's own, each with the other as its peer."""

import random
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import vllm_node
from vllm_node import Node, Raised, need, until

# What runs in a node.


def encoded(state, base, blocks, block):
    """What vLLM makes of another region."""
    from vllm.distributed.ec_transfer.ec_connector.cpu import utils

    return utils.serialize_mem_descriptor(utils.build_block_descs(base, blocks, block))


def repacked(state, descriptor, change):
    """A descriptor of other rows; change makes them."""
    from vllm.distributed.ec_transfer.ec_connector.cpu import utils

    return utils.serialize_mem_descriptor(
        eval(change)(utils.deserialize_mem_descriptor(descriptor))
    )


def base_of(state):
    import ctypes

    return ctypes.addressof(ctypes.c_char.from_buffer(state["memory"]))


def read_to_end(state, *arguments):
    """Posts a read, asks until it is done, and what is said then; a failure is raised."""
    pull = vllm_node.open_transport(state, "pull")
    handle = pull.post_read(*arguments)
    states = set()
    until(lambda: states.add(pull.check_xfer_state(handle)) or "DONE" in states)
    again = pull.check_xfer_state(handle)
    released = pull.release_xfer_handle(handle)
    return states - {"PROC"}, again, released


# The tests.


def permutation(count, seed):
    return random.Random(seed).sample(range(count), count)


class Nodes(unittest.TestCase):
    """A process of each maker, which reads from the other. The originals spin: none lives longer than its test."""

    settings = {}

    @classmethod
    def setUpClass(cls):
        need()
        cls.ours, cls.theirs = (
            Node(maker, maker, **cls.settings) for maker in ("ours", "original")
        )
        cls.addClassCleanup(cls.theirs.kill)
        cls.addClassCleanup(cls.ours.kill)
        for node in cls.ours, cls.theirs:
            node.start("vllm_node.call", "pull", "get_agent_metadata")

    def node(self, maker, name):
        node = Node(maker, name, **self.settings)
        self.addCleanup(node.kill)
        return node

    def pairs(self):
        """(who reads, who is read from)"""
        yield self.ours, self.theirs
        yield self.theirs, self.ours

    def notifs(self, node, count):
        """{sender: its messages}, when so many have come."""
        came = {}

        def asked():
            for sender, messages in node.pull("get_new_notifs").items():
                came.setdefault(sender, []).extend(messages)
            return sum(map(len, came.values())) >= count

        until(asked)
        return came

    def read_all(self, node, name, peer, seed, message):
        peer.fill(seed)
        node.fill(99)
        local, remote = permutation(node.blocks, seed + 1), permutation(peer.blocks, seed + 2)
        told = node.ask("test_vllm_pull.read_to_end", local, name, remote, message)
        self.assertEqual(told, ({"DONE"}, "DONE", None))
        self.assertEqual(
            node.wrong({here: (seed, there) for here, there in zip(local, remote)}), []
        )
        self.assertEqual(peer.wrong({index: (seed, index) for index in range(peer.blocks)}), [])
        if message:
            self.assertEqual(self.notifs(peer, 1), {f"{node.name} pull": [message]})

    def every_byte(self):
        for seed, (node, peer) in enumerate(self.pairs()):
            with self.subTest(node.maker):
                name = node.know(peer)
                # bytes, with the original's bindings, and so with ours.
                self.assertEqual(name, f"{peer.name} pull".encode())
                self.read_all(node, name, peer, 10 * seed, "session:häsh".encode())
                self.read_all(node, name, peer, 10 * seed + 5, b"\0\xff\0" * 1000)
                node.fill(50)
                node.ask("test_vllm_pull.read_to_end", [3], name, [5], b"one")
                self.assertEqual(
                    node.wrong({index: (50, index) for index in range(node.blocks) if index != 3}),
                    [],
                )
                self.assertEqual(self.notifs(peer, 1), {f"{node.name} pull": [b"one"]})
                # The same data once more, then a new registration.
                self.assertEqual(node.know(peer), name)
                self.read_all(node, name, peer, 20 + seed, b"")
                self.assertIsNone(node.pull("remove_remote_peer", name))
                with self.assertRaises(Raised) as refused:
                    node.pull("post_read", [0], name, [0], b"")
                self.assertEqual(
                    (refused.exception.kinds[0], refused.exception.text), ("KeyError", str(name))
                )
                self.assertEqual(node.know(peer), name)
                self.read_all(node, name, peer, 30 + seed, b"x")
                # None came of what had none.
                self.assertEqual(peer.pull("get_new_notifs"), {})
                node.pull("remove_remote_peer", name)


class Default(Nodes):
    """UCX as it likes best on one host."""

    def test_every_byte_both_ways(self):
        self.every_byte()

    def test_descriptors_are_the_originals(self):
        mine = self.ours.pull("get_mem_descriptor")
        base = self.ours.ask("test_vllm_pull.base_of")
        self.assertEqual(
            mine, self.theirs.ask("test_vllm_pull.encoded", base, self.ours.blocks, self.ours.block)
        )

    def test_some_blocks_in_another_order(self):
        for node, peer in self.pairs():
            with self.subTest(node.maker):
                rows = "lambda rows: rows[40:30:-1]"
                some = self.theirs.ask(
                    "test_vllm_pull.repacked", peer.pull("get_mem_descriptor"), rows
                )
                name = node.pull("add_remote_peer", peer.pull("get_agent_metadata"), some)
                peer.fill(60)
                node.ask("test_vllm_pull.read_to_end", [7, 8], name, [0, 9], b"")
                self.assertEqual(node.wrong({7: (60, 40), 8: (60, 31)}), [])
                node.pull("remove_remote_peer", name)

    def test_refusals_leave_nothing(self):
        for node, peer in self.pairs():
            metadata, descriptor = peer.pull("get_agent_metadata"), peer.pull("get_mem_descriptor")

            def rows(change):
                return self.theirs.ask(
                    "test_vllm_pull.repacked", descriptor, f"lambda rows: {change}"
                )

            cases = {
                "cut off metadata": (metadata[:100], descriptor),
                "no descriptor": (metadata, b""),
                "cut off descriptor": (metadata, descriptor[:-1]),
                "more after it": (metadata, descriptor + b"\0"),
                "no rows": (metadata, rows("[]")),
                "past the end": (
                    metadata,
                    rows("[*rows, (rows[-1][0] + rows[-1][1], rows[-1][1], 0)]"),
                ),
                "another device": (metadata, rows("[(rows[0][0], rows[0][1], 1)]")),
            }
            for what, data in cases.items():
                with self.subTest(f"{node.maker}: {what}"), self.assertRaises(Raised):
                    node.pull("add_remote_peer", *data)
            name = node.know(peer)
            for what, kind, lists in (
                ("lengths", "ValueError", ([0, 1], [0])),
                ("nothing", None, ([], [])),
                ("-1", None, ([-1], [0])),
                ("local", None, ([node.blocks], [0])),
                ("remote", None, ([0], [peer.blocks])),
                ("one of two", None, ([0, 1], [0, 2**31])),
            ):
                with self.subTest(f"{node.maker}: {what}"):
                    with self.assertRaises(Raised) as refused:
                        node.pull("post_read", lists[0], name, lists[1], b"m")
                    if kind:
                        self.assertEqual(refused.exception.kinds[0], kind)
            self.read_all(node, name, peer, 70, b"good")
            node.pull("remove_remote_peer", name)
            # Neither of these raises.
            node.pull("remove_remote_peer", name)
            node.pull("remove_remote_peer", b"nobody")

    def test_deregister(self):
        """A source that has ended is gone for its readers. The original's agent would go on."""
        source, node = self.node("ours", "mortal"), self.theirs
        name = node.know(source)
        self.read_all(node, name, source, 80, b"before")
        self.assertIsNone(source.pull("release_xfer_handle", 999))
        for _ in range(2):
            self.assertIsNone(source.pull("deregister"))
        for method, *arguments in ("release_xfer_handle", 1), ("remove_remote_peer", b"nobody"):
            self.assertIsNone(source.pull(method, *arguments))
        with self.assertRaises(Raised):
            source.pull("get_new_notifs")
        with self.assertRaises(Raised):
            node.ask("test_vllm_pull.read_to_end", [0], name, [0], b"never")
        node.pull("remove_remote_peer", name)


class Tcp(Nodes):
    """Over sockets, where reads stay in flight for as long as the source stands still."""

    # More than what sockets hold.
    settings = {"UCX_TLS": "tcp", "blocks": 32, "block": 1 << 20}

    def test_every_byte_both_ways(self):
        self.every_byte()

    def in_flight(self, node, peer):
        """(name, handle) of a read of everything from a peer that stands still."""
        name = node.know(peer)
        node.ask("test_vllm_pull.read_to_end", [0], name, [0], b"")
        peer.fill(1)
        node.fill(2)
        peer.stop()
        everything = list(range(node.blocks))
        handle = node.pull("post_read", everything, name, everything, b"was read")
        self.assertEqual(node.pull("check_xfer_state", handle), "PROC")
        return name, handle

    def test_release_in_mid_read(self):
        """No message comes of what was given up."""
        for node, peer in self.pairs():
            with self.subTest(node.maker):
                name, handle = self.in_flight(node, peer)
                self.assertIsNone(node.pull("release_xfer_handle", handle))
                peer.resume()
                node.ask("test_vllm_pull.read_to_end", [0], name, [1], b"last")
                self.assertEqual(self.notifs(peer, 1), {f"{node.name} pull": [b"last"]})
                self.assertEqual(peer.pull("get_new_notifs"), {})
                node.pull("remove_remote_peer", name)

    def test_same_data_again_in_mid_read(self):
        for node, peer in self.pairs():
            with self.subTest(node.maker):
                data = peer.pull("get_agent_metadata"), peer.pull("get_mem_descriptor")
                name, handle = self.in_flight(node, peer)
                self.assertEqual(node.pull("add_remote_peer", *data), name)
                peer.resume()
                until(lambda: node.pull("check_xfer_state", handle) == "DONE")
                self.assertEqual(
                    node.wrong({index: (1, index) for index in range(node.blocks)}), []
                )
                self.assertEqual(self.notifs(peer, 1), {f"{node.name} pull": [b"was read"]})
                node.pull("release_xfer_handle", handle)
                node.pull("remove_remote_peer", name)

    def test_removal_in_mid_read(self):
        """The original says so at once, while bytes keep landing; ours when none does any more."""
        node, peer = self.ours, self.theirs
        name, handle = self.in_flight(node, peer)
        node.pull("remove_remote_peer", name)
        self.assertEqual(node.pull("check_xfer_state", handle), "PROC")
        peer.resume()

        def failed():
            try:
                return node.pull("check_xfer_state", handle) == "DONE"
            except Raised as error:
                return error

        self.assertIn("Cancelled", until(failed).kinds)
        node.fill(3)
        self.assertIn("Cancelled", until(failed).kinds)
        node.pull("release_xfer_handle", handle)
        self.assertEqual(node.know(peer), name)
        node.ask("test_vllm_pull.read_to_end", [0], name, [0], b"")
        self.assertEqual(node.wrong({index: (3, index) for index in range(1, node.blocks)}), [])
        self.assertEqual(peer.pull("get_new_notifs"), {})
        node.pull("remove_remote_peer", name)

    def test_death_of_the_source_in_mid_read(self):
        for node, maker in (self.ours, "original"), (self.theirs, "ours"):
            with self.subTest(node.maker):
                peer, again = (self.node(maker, f"mortal {maker}") for _ in range(2))
                for mortal in peer, again:
                    mortal.start("vllm_node.call", "pull", "get_agent_metadata")
                name, handle = self.in_flight(node, peer)
                peer.kill()
                with self.assertRaises(Raised):
                    until(lambda: node.pull("check_xfer_state", handle) == "DONE")
                # It can be asked again, and freed.
                with self.assertRaises(Raised):
                    node.pull("check_xfer_state", handle)
                self.assertIsNone(node.pull("release_xfer_handle", handle))
                with self.assertRaises(Raised):
                    node.ask("test_vllm_pull.read_to_end", [0], name, [0], b"")
                node.pull("remove_remote_peer", name)
                self.assertEqual(node.know(again), name)
                self.read_all(node, name, again, 3, b"after")
                node.pull("remove_remote_peer", name)


# Only its subclasses are tests.
del Nodes

if __name__ == "__main__":
    unittest.main()
