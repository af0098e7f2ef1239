# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""The interface of datatransport.vllm's classes beside that of vLLM's own, taken from the published wheel."""

import inspect
import json
import re
import shlex
import sys
import unittest
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent))
import vllm_node
import vllm_stand_in
from vllm_node import Node, Raised, need

CONFIGURATIONS = (
    None,
    {},
    {"model": "m/é", "dtype": "bfloat16", "block_size": 16, "x": {"b": 1, "a": [1.5, None]}},
    # Keys are sorted before they become text.
    {9: "a", 10: "b", -1: {True: 1, False: 2}},
    {"1.0": 1.0, "1e22": 1e22, "nan": float("nan"), "\U00010000": "\ud800"},
)


# What runs in a node.


def interface(state, which):
    """{name: what it takes and returns} of all that is public."""
    told = {}
    for name, member in inspect.getmembers(state["classes"][which]):
        if name == "__init__" or not name.startswith("_"):
            what = member.fget if isinstance(member, property) else member
            text = str(inspect.signature(what, eval_str=True))
            # The same types, of other modules.
            for module in "vllm.v1.kv_offload.tiering.p2p.data.base.", "datatransport.vllm.push.":
                text = text.replace(module, "")
            told[name] = type(member).__name__, text
    return told


def kinds(state, name):
    """The types of what an object gives that has never met a peer; of NixlTransport, then of the other."""
    import ctypes

    open_transport = vllm_node.open_transport
    push, pull = open_transport(state, "push"), open_transport(state, "pull")
    told = {}
    for member in ("available", "base_addr", "num_blocks", "block_len", "config_fingerprint"):
        told[member] = type(getattr(push, member)).__name__
    base = ctypes.addressof(ctypes.c_char.from_buffer(state["memory"]))
    told["values"] = (
        push.base_addr == base,
        push.num_blocks,
        push.block_len,
        push.config_fingerprint,
    )
    told["poll"] = [type(push.poll(peer)).__name__ for peer in (None, "x")], push.poll()._fields
    told["cancel"] = (
        push.cancel([]),
        push.cancel(iter([1, 2]), "wait"),
        push.cancel({3}, mode="immediate"),
    )
    told["remove"] = push.remove_remote_peer("x"), pull.remove_remote_peer("x")
    # NIXL's bindings give names as bytes, and take any.
    told["no text"] = pull.remove_remote_peer(b"\xff"), pull.remove_remote_peer("\ud800")
    told["write"] = push.write_blocks("x", [0], [0])
    told["bytes"] = [
        type(found).__name__
        for found in (
            push.get_agent_metadata(),
            pull.get_agent_metadata(),
            pull.get_mem_descriptor(),
        )
    ]
    told["stable"] = push.get_agent_metadata() == push.get_agent_metadata()
    told["notifs"] = pull.get_new_notifs()
    told["future"] = type(push.add_remote_peer_async("x", b"", 0, 1, 1)).__name__
    told["raises"] = [
        refusal(pull.post_read, [0], "x", [0, 1], b""),
        refusal(pull.post_read, [0], "x", [0], b""),
        refusal(pull.post_read, [0], b"\xff", [0], b""),
    ]
    told["end"] = [push.close(), push.close(), pull.deregister(), pull.deregister()]
    return told


def refusal(function, *arguments):
    try:
        return function(*arguments)
    except Exception as error:
        return type(error).__name__, str(error)


def fingerprints(state, configurations):
    return [state["classes"]["push"]._compute_fingerprint(config) for config in configurations]


def construct(state, which, *arguments):
    memory = memoryview(state["memory"])
    made = {
        "read-only": lambda: memory.toreadonly().cast("B", (64, 16384)),
        "flat": lambda: memory.cast("B"),
        "right": lambda: memory.cast("B", (64, 16384)),
        "gaps": lambda: memory[::2],
    }
    state["classes"]["push"]("name", made[which](), *arguments)


def without_nixl(state):
    open_transport = vllm_node.open_transport
    push = open_transport(state, "push")
    told = [
        push.available,
        push.num_blocks,
        tuple(push.poll()),
        tuple(push.poll("x")),
        push.write_blocks("x", [0], [0]),
    ]
    told += [push.cancel([0]), push.remove_remote_peer("x"), refusal(push.get_agent_metadata)]
    told.append(type(push.add_remote_peer_async("x", b"m", 1, 1, 1).exception()) is not type(None))
    told.append(push.close())
    return told, refusal(open_transport, state, "pull")


def broken(state):
    """The library refuses all further work; what may not raise does not."""
    import datatransport

    push = vllm_node.open_transport(state, "push", backends=["LOCAL"])
    push.add_remote_peer("x", push.get_agent_metadata(), push.base_addr, 64, 16384)
    transport, xfer = push._transport, push.write_blocks("x", [0], [1])

    def refuse(*arguments, **keywords):
        raise datatransport.NoMemory("no memory for ids")

    transport.cancel = refuse
    assert push.cancel([xfer]) == []
    del transport.cancel
    vllm_node.until(lambda: transport.stats().done and not push.poll().done)
    xfer = push.write_blocks("x", [0], [1])
    transport.close()
    told = [tuple(push.poll()), tuple(push.poll("x")), push.write_blocks("x", [0], [1])]
    told += [
        push.cancel([xfer], "wait") == [xfer],
        push.cancel([xfer]),
        push.remove_remote_peer("x"),
    ]
    return [*told, push.close()]


def nixl_of(state, loaded):
    """Where NIXL is looked for when wheels for both CUDAs are installed, and one is loaded."""
    import tempfile

    from datatransport._create import _nixl_of_pip

    with tempfile.TemporaryDirectory() as folder:
        for name in "nixl_cu12", "nixl_cu13":
            libraries = Path(folder) / f".{name}.mesonpy.libs"
            libraries.mkdir()
            (libraries / "libnixl_capi.so").touch()
            (Path(folder) / f"{name}.py").touch()
        sys.path.insert(0, folder)
        if loaded:
            __import__(loaded)
        return Path(_nixl_of_pip()).name


def installed(state):
    """After install(), what vLLM's own modules name, and what they think of it."""
    import datatransport.vllm as ours
    from vllm.v1.kv_offload.tiering.p2p import data

    vllm_stand_in.nixl()
    original = data.NixlTransport
    ours.install()
    ours.install()
    from vllm.distributed.ec_transfer.ec_connector.cpu.data import base, nixl

    transport = data.NixlTransport("name", memoryview(state["memory"]).cast("B", (64, 16384)))
    told = [
        original is not ours.NixlTransport,
        data.NixlTransport is ours.NixlTransport,
        sys.modules[data.__name__ + ".nixl"].NixlTransport is ours.NixlTransport,
        nixl.NixlDataTransport is ours.NixlDataTransport,
        isinstance(transport, data.DataTransport),
        issubclass(nixl.NixlDataTransport, base.DataTransport),
    ]
    transport.close()
    return told


def install_over(state, change):
    import datatransport.vllm as ours
    from vllm.v1.kv_offload.tiering.p2p import data

    module = sys.modules[data.__name__ + ".nixl"]

    class NixlTransport(data.NixlTransport):
        pass

    exec(change, {"NixlTransport": NixlTransport})
    before, module.NixlTransport = module.NixlTransport, NixlTransport
    try:
        ours.install()
    finally:
        unchanged = module.NixlTransport is NixlTransport
        module.NixlTransport = before
        assert unchanged


class Readme(unittest.TestCase):
    def test_commands(self):
        """Those for vLLM are whole, and what is ours in them is what we take."""
        text = (Path(__file__).resolve().parents[1] / "README.md").read_text(encoding="utf-8")
        tiers, connectors = [], []
        for block in re.findall(r"^```sh\n(.*?)^```", text, re.DOTALL | re.MULTILINE):
            words = shlex.split(block.replace("\\\n", ""), comments=True)
            if "curl" in words:
                self.assertIn("kv_transfer_params", json.loads(words[words.index("-d") + 1]))
                continue
            self.assertIn("DATATRANSPORT_VLLM=1", words[: words.index("vllm")])
            config = json.loads(words[-1])
            if words[-2] == "--kv-transfer-config":
                tiers += config["kv_connector_extra_config"]["secondary_tiers"]
            else:
                self.assertEqual(words[-2], "--ec-transfer-config")
                self.assertIs(config["ec_connector_extra_config"]["ec_enable_nixl"], True)
                connectors.append(config["ec_connector"])
        self.assertEqual([one["type"] for one in tiers], ["p2p"] * 2)
        self.assertEqual(connectors, ["ECCPUConnector"] * 2)


class Interface(unittest.TestCase):
    maxDiff = None

    @classmethod
    def setUpClass(cls):
        need()
        cls.nodes = []
        for maker in "ours", "original":
            cls.nodes.append(Node(maker, maker))
            cls.addClassCleanup(cls.nodes[-1].kill)

    def both(self, function, *arguments):
        for node in self.nodes:
            node.start(f"test_vllm_interface.{function}", *arguments)
        return [node.wait() for node in self.nodes]

    def test_signatures(self):
        for which, some in ("push", "write_blocks"), ("pull", "post_read"):
            with self.subTest(which):
                ours, theirs = self.both("interface", which)
                self.assertIn(some, theirs)
                self.assertEqual(ours, theirs)

    def test_types_of_results(self):
        ours, theirs = self.both("kinds", "name")
        self.assertEqual(ours, theirs)

    def test_fingerprints(self):
        ours, theirs = self.both("fingerprints", CONFIGURATIONS)
        self.assertEqual(ours, theirs)
        self.assertEqual(theirs[2], "b38181f3b0d6952d")
        for node in self.nodes:
            with self.assertRaises(Raised) as refused:
                node.ask("test_vllm_interface.fingerprints", [{"set": {1}}])
            self.assertEqual(refused.exception.kinds[0], "TypeError")

    def test_constructors_refuse_the_same(self):
        for which in "read-only", "flat", "gaps":
            kinds = []
            for node in self.nodes:
                with self.assertRaises(Raised) as refused:
                    node.ask("test_vllm_interface.construct", which)
                kinds.append(refused.exception.kinds[0])
            self.assertEqual(*kinds)
        with self.assertRaises(Raised) as refused:
            self.nodes[0].ask("test_vllm_interface.construct", "right", None, ["UCX", "GDS"])
        self.assertEqual(refused.exception.kinds[0], "ValueError")

    def test_without_nixl(self):
        told = []
        for maker in "ours", "original":
            node = Node(maker, maker, nixl=False, DT_NIXL_LIB_DIR="/nowhere")
            self.addCleanup(node.kill)
            told.append(node.ask("test_vllm_interface.without_nixl"))
        (ours, refused), (theirs, also) = told
        self.assertEqual(ours, theirs)
        self.assertIs(ours[0], False)
        start = "ECCPUConnector requires NIXL"
        self.assertEqual((refused[0], also[0]), ("RuntimeError", "RuntimeError"))
        self.assertTrue(refused[1].startswith(start) and also[1].startswith(start), (refused, also))
        self.assertIn("/nowhere", refused[1])

    def test_what_may_not_raise(self):
        node = Node("ours", "broken")
        self.addCleanup(node.kill)
        empty, faulted, *rest = node.ask("test_vllm_interface.broken")
        self.assertEqual(empty, ((), (), None))
        self.assertRegex(faulted[2], "^poll raised Closed: .")
        self.assertEqual(rest, [None, True, [], None, None])

    def test_install(self):
        node = Node("ours", "installed")
        self.addCleanup(node.kill)
        self.assertEqual(node.ask("test_vllm_interface.installed"), [True] * 6)

    def test_the_nixl_that_vllm_has_loaded(self):
        for loaded, wanted in (
            (None, "nixl_cu12"),
            ("nixl_cu12", "nixl_cu12"),
            ("nixl_cu13", "nixl_cu13"),
        ):
            node = Node("ours", "loaded")
            self.addCleanup(node.kill)
            found = node.ask("test_vllm_interface.nixl_of", loaded)
            self.assertEqual(found, f".{wanted}.mesonpy.libs")

    def test_install_refuses_another_interface(self):
        node = Node("original", "another")
        self.addCleanup(node.kill)
        for change in (
            "NixlTransport.flush = lambda self: None",
            "NixlTransport.poll = lambda self, peer_id, timeout: None",
            "NixlTransport.cancel = lambda self, transfer_ids, mode='wait': None",
        ):
            with self.subTest(change), self.assertRaises(Raised) as refused:
                node.ask("test_vllm_interface.install_over", change)
            self.assertEqual(refused.exception.kinds[0], "RuntimeError")
            self.assertIn(change.split()[0].split(".")[1], refused.exception.text)


if __name__ == "__main__":
    unittest.main()
