# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""vLLM's own session code, unedited, over datatransport.vllm, with the original classes on the other side.

Messages go over ZeroMQ, by vLLM's own control planes; what is played here is the engine around them.
"""

import socket
import sys
import time
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
from vllm_node import Node, need, open_transport, pattern, until

HOST = "127.0.0.1"
CONFIGURATION = {"model": "m/é", "block_size": 16}
DISCONNECTED = "NIXL_ERR_REMOTE_DISCONNECT"


def free_port():
    with socket.socket() as found:
        found.bind((HOST, 0))
        return found.getsockname()[1]


# What runs in a node: the P2P tier. One session does both at once, to ask and to serve.


def key(index):
    return b"block %d" % index


class Engine:
    """Of the tier's manager what one session needs."""

    def __init__(self, state, port):
        from vllm.v1.kv_offload.tiering.p2p.control import ZmqTransport

        self.data = open_transport(state, "push", config_fields=CONFIGURATION)
        self.name = f"{HOST}:{port}"
        self.control = ZmqTransport(self.name, HOST, port)
        self.session = None
        self.loads, self.stores, self.fetched = [], [], []

    def connect(self, port):
        self.meet(self.control.connect(f"{HOST}:{port}"))

    def meet(self, connection):
        from vllm.v1.kv_offload.tiering.p2p.session import P2PSession

        self.session = P2PSession(
            peer_id=connection.peer_id,
            local_id=self.name,
            transport=self.data,
            local_block_len=self.data.block_len,
            local_hash_seed="seed",
            conn=connection,
        )

    def step(self):
        for connection in self.control.poll():
            self.meet(connection)
        if self.session is not None:
            result = self.session.poll()
            self.loads += result.loads
            self.stores += result.stores
            self.fetched += result.new_fetch_ids

    def until(self, what):
        until(lambda: self.step() or what())

    def end(self):
        closed = self.session.close()
        self.data.remove_remote_peer(self.session.peer_id)
        self.control.close()
        return closed


def listen(state):
    """Before any peer connects: one that is refused counts as dead."""
    port = free_port()
    state["engine"] = Engine(state, port)
    return port


def exchange(state, peer_port, seed):
    """Asks the peer for half of its blocks, in another order, and serves it those that it asks for."""
    engine = state.pop("engine")
    if peer_port:
        engine.connect(peer_port)
    half = state["blocks"] // 2
    for index in range(half):
        at = index * state["block"]
        state["memory"][at : at + state["block"]] = pattern(seed, index, state["block"])
    engine.until(lambda: engine.session is not None)
    mine, theirs = ("a", "b") if peer_port else ("b", "a")
    engine.session.request_blocks(
        1, mine, [key(index) for index in range(half)], list(range(2 * half - 1, half - 1, -1))
    )
    # Some are there before they are asked for, and some come later.
    engine.session.add_stored_blocks(theirs, [key(0), key(1)], [0, 1], 10)
    engine.until(lambda: theirs in engine.fetched)
    engine.session.add_stored_blocks(
        theirs, [key(index) for index in range(2, half)], list(range(2, half)), 11
    )
    engine.until(lambda: engine.loads and len(engine.stores) == 2)
    # What was sent last is lost when its sender ends, so each says that it has all. The other may have ended then.
    engine.session.request_blocks(2, "all", [], [])
    engine.until(lambda: "all" in engine.fetched or not engine.session.alive)
    told = [tuple(load) for load in engine.loads], sorted(map(tuple, engine.stores))
    return told, engine.end().failed_jobs


def serve_one_who_is_gone(state):
    engine = state.pop("engine")
    engine.until(lambda: engine.fetched)
    engine.session.add_stored_blocks("gone", [key(0)], [0], 20)
    engine.until(lambda: not engine.session.alive)
    told = engine.session.data_plane_fault, engine.session.death_reason
    end = engine.end()
    return told, [tuple(store) for store in engine.stores] + [
        (job, False) for job in end.failed_stores
    ]


def ask_and_be_gone(state, peer_port):
    """Its data plane ends, while its control plane goes on."""
    engine = state.pop("engine")
    engine.connect(peer_port)
    engine.until(lambda: engine.session.ready)
    engine.data.close()
    state["push"] = None
    engine.session.request_blocks(1, "gone", [key(0)], [1])
    engine.until(lambda: not engine.session.alive)
    loads = [tuple(load) for load in engine.loads]
    return loads, engine.session.death_reason, engine.end().failed_jobs


# What runs in a node: the encoder cache.


def produce(state, port, embeddings, seed):
    """Offers embeddings, {hash: number of its blocks}, until each was read once."""
    from vllm.distributed.ec_transfer.ec_connector.cpu.control.zmq import ZmqServerTransport
    from vllm.distributed.ec_transfer.ec_connector.cpu.scheduler.embedding_cache import (
        EmbeddingCache,
    )
    from vllm.distributed.ec_transfer.ec_connector.cpu.session import ProducerSession

    data = open_transport(state, "pull")
    cache = EmbeddingCache(state["blocks"])
    for name, count in embeddings.items():
        for number, block in enumerate(cache.alloc(name, count).block_ids):
            at = block * state["block"]
            state["memory"][at : at + state["block"]] = pattern(
                f"{seed} {name}", number, state["block"]
            )
        cache.mark_ready(name)
    session = ProducerSession(ZmqServerTransport(HOST, port), data, cache, "hash")
    pinned, read = set(), set()

    def step():
        session.poll_step()
        for name in embeddings:
            if not cache.get(name).evictable:
                pinned.add(name)
            elif name in pinned:
                read.add(name)
        return read == set(embeddings)

    until(step)
    session.close()
    return sorted(read), cache.has_held_entries()


def meet_producer(state, port):
    from vllm.distributed.ec_transfer.ec_connector.cpu.control.zmq import ZmqClientTransport
    from vllm.distributed.ec_transfer.ec_connector.cpu.session import ConsumerSession

    control = ZmqClientTransport()
    address = HOST, port
    state["consumer"] = control, ConsumerSession(
        address, control.connect(address), control, open_transport(state, "pull"), "hash"
    )


def consume(state, wanted):
    """Reads {hash: own blocks}; returns those that were completed."""
    control, session = state["consumer"]
    for name, blocks in wanted.items():
        session.start_xfer(name, blocks, time.monotonic() + 60)
    completed = set()

    def step():
        session.poll(control.poll().get(session.addr, []), time.monotonic())
        results = session.take_results()
        assert not results.tombstoned and not results.quarantined and not results.retryable, results
        completed.update(results.completed)
        return completed == set(wanted)

    until(step)
    return sorted(completed), session.has_in_flight()


def leave_producer(state):
    control, session = state.pop("consumer")
    session.close()
    control.close()


# The tests.


class Sessions(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        need()
        cls.ours, cls.theirs = (Node(maker, maker) for maker in ("ours", "original"))
        cls.addClassCleanup(cls.theirs.kill)
        cls.addClassCleanup(cls.ours.kill)

    def node(self, *arguments, **keywords):
        node = Node(*arguments, **keywords)
        self.addCleanup(node.kill)
        return node

    def listening(self, *nodes):
        for node in nodes:
            node.start("test_vllm_sessions.listen")
        return [node.wait() for node in nodes]

    def exchange(self, first, second, seed):
        _, port = self.listening(first, second)
        second.start("test_vllm_sessions.exchange", None, seed + 1)
        first.start("test_vllm_sessions.exchange", port, seed)
        for node, mine in (first, "a"), (second, "b"):
            self.assertEqual(node.wait(), (([(1, mine, True)], [(10, True), (11, True)]), [2]))
        half = first.blocks // 2
        for node, theirs in (first, seed + 1), (second, seed):
            self.assertEqual(
                node.wrong({2 * half - 1 - index: (theirs, index) for index in range(half)}), []
            )

    def test_p2p_exchange(self):
        self.exchange(self.ours, self.theirs, 10)
        self.exchange(self.theirs, self.ours, 20)

    def test_p2p_exchange_over_local(self):
        first, second = (
            self.node("ours", name, DT_BACKEND="local") for name in ("first", "second")
        )
        self.exchange(first, second, 30)

    def test_p2p_fault(self):
        """The data plane finds the peer gone, and vLLM ends the session for it."""
        for server, client in (self.ours, self.theirs), (self.theirs, self.ours):
            with self.subTest(server.maker):
                port, _ = self.listening(server, client)
                server.start("test_vllm_sessions.serve_one_who_is_gone")
                client.start("test_vllm_sessions.ask_and_be_gone", port)
                told, stores = server.wait()
                self.assertEqual(told, (DISCONNECTED, f"data plane: {DISCONNECTED}"))
                self.assertEqual(stores, [(20, False)])
                loads, reason, failed = client.wait()
                # That the load has failed may come before the end of the connection.
                self.assertIn((loads, failed), (([(1, "gone", False)], []), ([], [1])))
                self.assertIn(reason, ("peer disconnected", "control connection lost"))

    def read(self, consumer, producer, port, seed, restarted=False):
        embeddings = {"first": 3, "a longer häsh": 20}
        producer.start("test_vllm_sessions.produce", port, embeddings, seed)
        if not restarted:
            consumer.ask("test_vllm_sessions.meet_producer", port)
        wanted = {"first": [40, 7, 8], "a longer häsh": list(range(39, 19, -1))}
        self.assertEqual(
            consumer.ask("test_vllm_sessions.consume", wanted), (sorted(wanted), False)
        )
        self.assertEqual(producer.wait(), (sorted(embeddings), False))
        blocks = {
            block: (f"{seed} {name}", number)
            for name in wanted
            for number, block in enumerate(wanted[name])
        }
        self.assertEqual(consumer.wrong(blocks), [])

    def test_encoder_cache(self):
        for consumer, producer in (self.ours, self.theirs), (self.theirs, self.ours):
            with self.subTest(consumer.maker):
                self.read(consumer, producer, free_port(), 40)
                consumer.ask("test_vllm_sessions.leave_producer")

    def test_encoder_cache_over_local(self):
        consumer, producer = (
            self.node("ours", name, DT_BACKEND="local") for name in ("consumer", "producer")
        )
        self.read(consumer, producer, free_port(), 50)

    def test_producer_that_restarts(self):
        """Under the same name and at the same place; the consumer's session finds other metadata."""
        for consumer, maker in (self.ours, "original"), (self.theirs, "ours"):
            with self.subTest(consumer.maker):
                port = free_port()
                producer = self.node(maker, "producer")
                self.read(consumer, producer, port, 60)
                producer.kill()
                self.read(consumer, self.node(maker, "producer"), port, 61, restarted=True)
                consumer.ask("test_vllm_sessions.leave_producer")


if __name__ == "__main__":
    unittest.main()
