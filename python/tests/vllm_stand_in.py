# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""What the files of vLLM import from the rest of it, in as far as they use it.

The files themselves are unedited: scripts/vllm.sh takes them from the wheel. The rest of vLLM would need
torch and more, and has no part in what is tested.
"""

import enum
import os
import sys
import types
import typing
from pathlib import Path

THIRD_PARTY = Path(__file__).resolve().parents[2] / "third_party"


def stand_in():
    for folder in ("vllm", "nixl", "python"):
        sys.path.insert(1, str(THIRD_PARTY / folder))
    platforms = _module("vllm.platforms")
    platforms.current_platform = types.SimpleNamespace(is_rocm=lambda: False)
    # Only who asks for them wants its messages.
    os.environ.setdefault("VLLM_CONFIGURE_LOGGING", "0")
    os.environ.setdefault("VLLM_P2P_HANDSHAKE_TIMEOUT_S", "60")
    # vllm itself has no file here.
    sys.modules["vllm"] = _package("vllm", platforms=platforms)
    state = _module("vllm.distributed.parallel_state")
    state.is_local_first_rank = state.is_global_first_rank = lambda: True
    base = _module("vllm.v1.kv_offload.base")
    base.OffloadKey = typing.NewType("OffloadKey", bytes)
    base.LookupResult = enum.Enum("LookupResult", "MISS HIT HIT_PENDING RETRY")
    base.ReqContext = type(
        "ReqContext", (), {"__init__": lambda self, **fields: self.__dict__.update(fields)}
    )
    network = _module("vllm.utils.network_utils")
    network.make_zmq_path = lambda scheme, host, port: f"{scheme}://{host}:{port}"

    def make_zmq_socket(ctx, path, socket_type, bind):
        socket = ctx.socket(socket_type)
        (socket.bind if bind else socket.connect)(path)
        return socket

    network.make_zmq_socket = make_zmq_socket
    # As vLLM itself sets it, before NIXL is loaded; the wheel has NIXL's package under another name.
    os.environ.setdefault("UCX_RCACHE_MAX_UNRELEASED", "1024")


def nixl():
    """NIXL's own bindings, which only the original classes need."""
    import nixl_cu12
    import nixl_cu12._api

    bindings = nixl_cu12._api.nixlBind

    class Config(bindings.nixlAgentConfig):
        def __setattr__(self, name, value):
            # Its progress thread spins otherwise, and takes a core from all others.
            super().__setattr__(name, 500 if name == "pthrDelay" else value)

    bindings.nixlAgentConfig = Config
    sys.modules.update({"nixl": nixl_cu12, "nixl._api": nixl_cu12._api})


def original_push():
    from vllm.v1.kv_offload.tiering.p2p.data.nixl import NixlTransport

    return NixlTransport


def original_pull():
    from vllm.distributed.ec_transfer.ec_connector.cpu.data.nixl import NixlDataTransport

    return NixlDataTransport


def _module(name):
    module = sys.modules[name] = types.ModuleType(name)
    return module


def _package(name, **attributes):
    package = types.ModuleType(name)
    package.__path__ = [str(THIRD_PARTY / name / name)]
    package.__dict__.update(attributes)
    return package
