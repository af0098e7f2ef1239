# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""Puts the classes where vLLM looks for its own."""

from __future__ import annotations

import importlib
import inspect
import sys
from typing import Any

from datatransport import library_path, library_version

from ._open import logger
from .pull import NixlDataTransport
from .push import NixlTransport

_P2P = "vllm.v1.kv_offload.tiering.p2p"
_EC = "vllm.distributed.ec_transfer.ec_connector.cpu"
# (our class, the package of the original's base.py and nixl.py, modules that hold its name besides)
_PLACES: tuple[tuple[type[Any], str, tuple[str, ...]], ...] = (
    (NixlTransport, f"{_P2P}.data", (f"{_P2P}.data", f"{_P2P}.manager")),
    (NixlDataTransport, f"{_EC}.data", ()),
)


def install() -> None:
    """Lets vLLM use the classes of this package, in this process.

    Call it in the process of the engine core, before the engine is made. Raises ImportError where vLLM
    has no such classes, and RuntimeError where they are called otherwise than those of vLLM 0.33; then
    nothing was changed. May be repeated.
    """
    found = []
    for ours, package, holders in _PLACES:
        try:
            module = importlib.import_module(f"{package}.nixl")
            base = importlib.import_module(f"{package}.base").DataTransport
            original = getattr(module, ours.__name__)
        except (ImportError, AttributeError) as reason:
            raise ImportError(
                f"vLLM's {ours.__name__} is not where vLLM 0.33 has it ({package}): {reason}"
            ) from reason
        if original is ours:
            continue
        _compare(original, ours)
        found.append(
            (ours, base, [module, *(sys.modules[name] for name in holders if name in sys.modules)])
        )
    for ours, base, modules in found:
        base.register(ours)
        for module in modules:
            setattr(module, ours.__name__, ours)
        logger.info(
            "vLLM's %s is that of libdatatransport %s (%s)",
            ours.__name__,
            ".".join(map(str, library_version())),
            library_path(),
        )


def _compare(original: type[Any], ours: type[Any]) -> None:
    for name, method in inspect.getmembers(original):
        if name.startswith("_") and name != "__init__":
            continue
        if not hasattr(ours, name):
            raise RuntimeError(
                f"this vLLM's {original.__name__} has {name}, and vLLM 0.33's has not"
            )
        if callable(method):
            theirs, here = _parameters(method), _parameters(getattr(ours, name))
            if theirs != here:
                raise RuntimeError(
                    f"this vLLM's {original.__name__}.{name} takes {theirs}, and vLLM 0.33's takes {here}"
                )


def _parameters(method: Any) -> list[str]:
    return [
        f"{one.name}={one.default!r}" if one.default is not one.empty else one.name
        for one in inspect.signature(method).parameters.values()
    ]
