# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""datatransport.vllm.NixlTransport beside vLLM's own NixlTransport, each with the other as its peer."""

import random
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import vllm_node
from vllm_node import Node, Raised, need, until

DISCONNECTED = "NIXL_ERR_REMOTE_DISCONNECT"


def finish(node, peer, ids):
    """(done, failed) of ids, which must all surface, each once."""
    done, failed = [], []

    def polled():
        result = node.push("poll", peer)
        done.extend(result[0])
        failed.extend(result[1])
        return len(done) + len(failed) >= len(ids)

    until(polled)
    if sorted(done + failed) != sorted(ids):
        raise AssertionError(f"{ids} were submitted, {done} done, {failed} failed")
    return done, failed


def permutation(count, seed):
    return random.Random(seed).sample(range(count), count)


def of_local(state):
    """In a node: as of_push, over LOCAL."""
    vllm_node.open_transport(state, "push", backends=["LOCAL"])
    return vllm_node.of_push(state)


class Nodes(unittest.TestCase):
    """A process of each maker, with the other as its peer. The originals spin: none lives longer than its test."""

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
            node.start("vllm_node.of_push")

    def node(self, maker, name):
        node = Node(maker, name, **self.settings)
        self.addCleanup(node.kill)
        return node

    def pairs(self):
        yield self.ours, self.theirs
        yield self.theirs, self.ours

    def write_all(self, node, peer, seed):
        """Every block somewhere else; every byte is looked at."""
        node.fill(seed)
        local, remote = permutation(node.blocks, seed + 1), permutation(peer.blocks, seed + 2)
        xfer = node.push("write_blocks", peer.name, local, remote)
        self.assertEqual(finish(node, peer.name, [xfer]), ([xfer], []))
        self.assertEqual(
            peer.wrong({there: (seed, here) for here, there in zip(local, remote)}), []
        )
        self.assertEqual(node.wrong({index: (seed, index) for index in range(node.blocks)}), [])
        return xfer

    def every_byte(self):
        for seed, (node, peer) in enumerate(self.pairs()):
            with self.subTest(node.maker):
                node.add(peer)
                ids = [self.write_all(node, peer, 10 * seed + turn) for turn in range(2)]
                self.assertEqual(ids[1], ids[0] + 1)
                peer.fill(50)
                xfer = node.push("write_blocks", peer.name, [3], [5])
                finish(node, peer.name, [xfer])
                others = {index: (50, index) for index in range(peer.blocks) if index != 5}
                self.assertEqual(peer.wrong(others), [])
                self.assertEqual(node.push("poll", peer.name), ((), (), None))
                node.push("remove_remote_peer", peer.name)
                self.assertIsNone(node.push("write_blocks", peer.name, [3], [5]))
                self.assertEqual(node.push("poll", peer.name), ((), (), None))

    def is_lost(self, node, peer):
        """The next write finds out."""
        xfer = node.push("write_blocks", peer.name, [1], [2])
        if xfer is not None:
            self.assertEqual(finish(node, peer.name, [xfer]), ([], [xfer]))
        self.assertEqual(node.push("poll", peer.name), ((), (), DISCONNECTED))
        self.assertIsNone(node.push("write_blocks", peer.name, [1], [2]))


class Default(Nodes):
    """UCX as it likes best on one host."""

    def test_every_byte_both_ways(self):
        self.every_byte()

    def test_refused_registrations_leave_nothing(self):
        for seed, (node, peer) in enumerate(self.pairs()):
            right = peer.ask("vllm_node.of_push")
            cases = {
                "cut off": {"agent_metadata": right["agent_metadata"][:100]},
                "no metadata": {"agent_metadata": b""},
                "one block too many": {"num_blocks": right["num_blocks"] + 1},
                "one byte too low": {"base_addr": right["base_addr"] - 1},
                "nowhere": {"base_addr": 1 << 40},
                "no blocks": {"num_blocks": 0},
                "beyond 64 bits": {"base_addr": 1 << 64},
            }
            for what, changes in cases.items():
                with self.subTest(f"{node.maker}: {what}"):
                    with self.assertRaises(Raised):
                        node.add(peer, **changes)
                    # That of the asynchronous one is in the future.
                    with self.assertRaises(Raised) as refused:
                        node.push("add_remote_peer_async", peer.name, **dict(right, **changes))
                    self.assertEqual(refused.exception.kinds, ["Future"])
                    self.assertIsNone(node.push("write_blocks", peer.name, [0], [0]))
                    self.assertEqual(node.push("poll", peer.name), ((), (), None))
            self.assertIsNone(node.push("add_remote_peer_async", peer.name, **right))
            self.write_all(node, peer, 20 + seed)
            node.push("remove_remote_peer", peer.name)
        # The original takes it, and refuses each write.
        with self.assertRaises(Raised) as refused:
            self.ours.add(self.theirs, block_len=self.theirs.block // 2)
        self.assertIn(str(self.theirs.block // 2), refused.exception.text)

    def test_strikes(self):
        """The same calls to both have the same results, but for the last words of the fault."""

        def write(node, peer, local, remote):
            return node.push("write_blocks", peer.name, local, remote)

        told = {}
        for node, peer in self.pairs():
            node.add(peer)
            seen = told[node.maker] = []
            first = write(node, peer, [0], [0])
            finish(node, peer.name, [first])
            last = node.blocks
            bad = (
                ([], []),
                ([0, 1], [0]),
                ([-1], [0]),
                ([last], [0]),
                ([0], [last]),
                ([0, 1], [0, 2**31 - 1]),
            )
            for turn, lists in enumerate(bad):
                # Never three in a row.
                if turn % 2 == 0:
                    good = write(node, peer, [0], [0])
                    seen.append((good - first, finish(node, peer.name, [good]) == ([good], [])))
                seen.append((write(node, peer, *lists), node.push("poll", peer.name)))
            seen.append(write(node, peer, [0], [last]))
            fault = node.push("poll", peer.name)[2]
            self.assertRegex(fault, r"^3 consecutive transfer failures \(last: \w+: .+\)$")
            seen.append(node.push("poll", None))
            # It stays, until the peer is removed.
            good = write(node, peer, [0], [0])
            seen.append((good - first, finish(node, peer.name, [good]) == ([good], [])))
            self.assertEqual(node.push("poll", peer.name), ((), (), fault))
            node.push("remove_remote_peer", peer.name)
            seen.append(node.push("poll", peer.name))
            node.add(peer)
            seen.append(node.push("poll", peer.name))
            self.write_all(node, peer, 30)
            # Strikes of before the removal do not count.
            seen.append(
                [(write(node, peer, [], []), node.push("poll", peer.name)) for _ in range(2)]
            )
            node.push("remove_remote_peer", peer.name)
        self.assertEqual(told["ours"], told["original"])
        # The original cuts them to integers.
        self.ours.add(self.theirs)
        for wrong in [0.5], ["1"], [None]:
            with self.assertRaises(Raised) as refused:
                self.ours.push("write_blocks", self.theirs.name, wrong, [0])
            self.assertEqual(refused.exception.kinds[0], "TypeError")
        self.assertEqual(self.ours.push("poll", self.theirs.name), ((), (), None))
        # It raises for these, which a peer may have asked for.
        for high in 2**31, 2**32 + 1, 2**64:
            self.assertIsNone(self.ours.push("write_blocks", self.theirs.name, [0], [high]))
        self.assertRegex(self.ours.push("poll", self.theirs.name)[2], f"^3 consecutive .*{2**64}")
        self.ours.push("remove_remote_peer", self.theirs.name)

    def test_two_names_for_one_peer(self):
        """The original loses both with one."""
        for name in "one", "two":
            self.ours.add(self.theirs, name)
        ids = [self.ours.push("write_blocks", name, [5], [6]) for name in ("one", "two")]
        self.assertEqual(finish(self.ours, "two", ids[1:]), (ids[1:], []))
        self.assertEqual(finish(self.ours, "one", ids[:1]), (ids[:1], []))
        self.ours.push("remove_remote_peer", "one")
        last = self.ours.push("write_blocks", "two", [5], [6])
        self.assertEqual(finish(self.ours, "two", [last]), ([last], []))
        self.ours.push("remove_remote_peer", "two")

    def test_cancel_of_what_has_ended(self):
        for node, peer in self.pairs():
            with self.subTest(node.maker):
                node.add(peer)
                for mode in "immediate", "wait":
                    xfer = node.push("write_blocks", peer.name, [1], [2])
                    self.assertEqual(node.push("cancel", [xfer + 1000], mode=mode), [])
                    # It may not have ended yet.
                    until(lambda: node.push("cancel", [xfer, xfer], mode=mode) == [])
                    self.assertEqual(node.push("poll", peer.name), ((), (), None))
                    self.assertEqual(node.push("cancel", [xfer], mode=mode), [])
                node.push("remove_remote_peer", peer.name)

    def test_polls_of_one_peer_leave_the_others(self):
        node, peers = self.ours, (self.theirs, self.node("original", "another"))
        for peer in peers:
            node.add(peer)
        for peer in peers:
            ids = [node.push("write_blocks", to.name, [1, 2], [3, 4]) for to in peers]
            mine = ids[peers.index(peer)]
            self.assertEqual(finish(node, peer.name, [mine]), ([mine], []))
            ids.remove(mine)
            self.assertEqual(finish(node, None, ids), (ids, []))
        # The fault of one is not the other's, nor that of all.
        for _ in range(3):
            self.assertIsNone(node.push("write_blocks", peers[1].name, [0], [9999]))
        self.assertIsNotNone(node.push("poll", peers[1].name)[2])
        self.assertIsNone(node.push("poll", peers[0].name)[2])
        self.assertIsNone(node.push("poll", None)[2])
        for peer in peers:
            node.push("remove_remote_peer", peer.name)

    def test_death_and_close(self):
        """The same is seen of an original that ends and of one of ours; it comes back under the same name."""
        for node, maker in (self.ours, "original"), (self.theirs, "ours"):
            with self.subTest(node.maker):
                peer, again = (self.node(maker, f"mortal {maker}") for _ in range(2))
                peer.start("vllm_node.of_push")
                again.start("vllm_node.of_push")
                node.add(peer)
                self.write_all(node, peer, 40)
                peer.kill()
                self.is_lost(node, peer)
                node.push("remove_remote_peer", peer.name)
                self.assertEqual(node.push("poll", peer.name), ((), (), None))

                peer = again
                node.add(peer)
                peer.add(node)
                self.write_all(node, peer, 41)
                self.write_all(peer, node, 42)
                self.assertIs(peer.push("available"), True)
                for _ in range(2):
                    self.assertIsNone(peer.push("close"))
                self.assertIs(peer.push("available"), False)
                self.assertEqual(peer.push("poll", node.name), ((), (), None))
                self.assertEqual(peer.push("cancel", [0]), [])
                self.assertIsNone(peer.push("write_blocks", node.name, [0], [0]))
                peer.push("remove_remote_peer", node.name)
                with self.assertRaises(Raised):
                    peer.add(node)
                self.is_lost(node, peer)
                node.push("remove_remote_peer", peer.name)


class Tcp(Nodes):
    """Over sockets, where transfers stay in flight for as long as the target stands still."""

    # More than what sockets hold.
    settings = {"UCX_TLS": "tcp", "blocks": 32, "block": 1 << 20}

    def test_every_byte_both_ways(self):
        self.every_byte()

    def in_flight(self, node, peer):
        """The id of a write of everything to a peer that stands still."""
        node.add(peer)
        warm = node.push("write_blocks", peer.name, [0], [0])
        finish(node, peer.name, [warm])
        node.fill(1)
        peer.fill(2)
        peer.stop()
        everything = list(range(node.blocks))
        xfer = node.push("write_blocks", peer.name, everything, everything)
        self.assertEqual(node.push("poll", peer.name), ((), (), None))
        return xfer

    def holds(self, peer, seed):
        self.assertEqual(peer.wrong({index: (seed, index) for index in range(peer.blocks)}), [])

    def test_cancel_wait(self):
        for node, peer in self.pairs():
            with self.subTest(node.maker):
                xfer = self.in_flight(node, peer)
                still = node.push("cancel", [xfer, xfer + 1000], mode="wait")
                peer.resume()
                self.assertEqual(still, [xfer])
                done, failed = finish(node, peer.name, [xfer])
                if node.maker == "original" or done:
                    self.assertEqual((done, failed), ([xfer], []))
                    self.holds(peer, 1)
                # Ours does not begin with what had not begun. Nothing comes any more, though.
                peer.fill(3)
                self.assertEqual(node.push("poll", peer.name), ((), (), None))
                last = node.push("write_blocks", peer.name, [0], [0])
                finish(node, peer.name, [last])
                self.assertEqual(
                    peer.wrong({index: (3, index) for index in range(1, peer.blocks)}), []
                )
                node.push("remove_remote_peer", peer.name)

    def test_cancel_immediate(self):
        for node, peer in self.pairs():
            with self.subTest(node.maker):
                xfer = self.in_flight(node, peer)
                self.assertEqual(node.push("cancel", [xfer]), [])
                self.assertEqual(node.push("poll", peer.name), ((), (), None))
                peer.resume()
                second = node.push("write_blocks", peer.name, [0], [1])
                self.assertEqual(finish(node, peer.name, [second]), ([second], []))
                self.assertEqual(node.push("poll", None), ((), (), None))
                node.push("remove_remote_peer", peer.name)

    def test_removal_in_mid_transfer(self):
        """Where the original's id stays in flight for good, ours surfaces as failed, when nothing comes any more."""
        node, peer = self.ours, self.theirs
        right = peer.ask("vllm_node.of_push")
        # As many as would be a fault, if they were failures.
        ids = [self.in_flight(node, peer)]
        ids += [node.push("write_blocks", peer.name, [0], [0]) for _ in range(2)]
        node.push("remove_remote_peer", peer.name)
        self.assertIsNone(node.push("write_blocks", peer.name, [0], [0]))
        # Known again, before the old registration is quiet.
        node.push("add_remote_peer", peer.name, **right)
        peer.resume()
        done, failed = finish(node, peer.name, ids)
        self.assertEqual((done, sorted(failed)), ([], ids))
        peer.fill(5)
        # It is no fault of the new registration's.
        self.assertEqual(node.push("poll", peer.name), ((), (), None))
        last = node.push("write_blocks", peer.name, [0], [0])
        self.assertEqual(finish(node, peer.name, [last]), ([last], []))
        self.assertEqual(peer.wrong({index: (5, index) for index in range(1, peer.blocks)}), [])
        self.write_all(node, peer, 6)
        node.push("remove_remote_peer", peer.name)

    def test_death_in_mid_transfer(self):
        for node, maker in (self.ours, "original"), (self.theirs, "ours"):
            with self.subTest(node.maker):
                peer = self.node(maker, f"mortal {maker}")
                xfer = self.in_flight(node, peer)
                peer.kill()
                self.assertEqual(finish(node, peer.name, [xfer]), ([], [xfer]))
                self.is_lost(node, peer)
                self.holds(node, 1)
                node.push("remove_remote_peer", peer.name)
                node.push("remove_remote_peer", peer.name)


class Local(unittest.TestCase):
    """Without NIXL, and without a single setting of the environment: vLLM's list of backends says so."""

    def test_every_byte_and_a_death_that_no_write_has_to_find(self):
        need()
        nodes = [Node("ours", name, DT_NIXL_LIB_DIR="/nowhere") for name in ("first", "second")]
        for node in nodes:
            self.addCleanup(node.kill)
            node.start("test_vllm_push.of_local")
        (_, first), (peer, second) = [(node, node.wait()) for node in nodes]
        node = nodes[0]
        node.push("add_remote_peer", "peer", **second)
        # Both ways at once, and of itself.
        peer.push("add_remote_peer", "peer", **first)
        node.push("add_remote_peer", "self", **first)
        node.fill(1)
        local, remote = permutation(64, 2), permutation(64, 3)
        xfer = node.push("write_blocks", "peer", local, remote)
        # The originals count from there, too.
        self.assertEqual(xfer, 0)
        self.assertEqual(finish(node, "peer", [xfer]), ([xfer], []))
        self.assertEqual(peer.wrong({there: (1, here) for here, there in zip(local, remote)}), [])
        xfer = node.push("write_blocks", "self", [1], [2])
        self.assertEqual(finish(node, "self", [xfer]), ([xfer], []))
        self.assertEqual(node.wrong({2: (1, 1)}), [])
        self.assertEqual(node.push("poll", "peer"), ((), (), None))
        peer.kill()
        fault = until(lambda: node.push("poll", "peer")[2])
        self.assertEqual(fault, DISCONNECTED)
        self.assertIsNone(node.push("write_blocks", "peer", [0], [0]))
        node.push("remove_remote_peer", "peer")
        self.assertEqual(node.push("poll", "peer"), ((), (), None))


# Only its subclasses are tests.
del Nodes

if __name__ == "__main__":
    unittest.main()
