# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""From the arguments of a Transport to those of dt_create."""

from __future__ import annotations

import ctypes
import glob
import os
import re
import sys
from typing import Any, Mapping, Optional, Union

from . import _abi, _convert
from ._convert import Buffer
from .errors import InvalidArgument
from .fingerprint import config_text
from .region import Region
from .results import Backend


def bytes_of(memory: Union[Region, Buffer]) -> tuple[memoryview, int]:
    """All bytes of a buffer, in their order in memory, and where they are.

    As long as the view lives, the buffer cannot be resized, unmapped or freed.
    """
    try:
        view = memory.view() if isinstance(memory, Region) else memoryview(memory)
    except TypeError:
        # What the buffer's own code raises is the caller's.
        if hasattr(type(memory), "__buffer__"):
            raise
        raise TypeError(
            "memory must be a Region or a buffer that can be written, not"
            f" {type(memory).__name__}"
        ) from None
    if view.readonly:
        raise InvalidArgument("memory is read-only, but peers may write to it")
    if not view.c_contiguous:
        raise InvalidArgument("memory has gaps, but blocks lie one after the other")
    if view.nbytes == 0:
        raise InvalidArgument("memory is empty, but a transport has a block at least")
    # Names of fields may have any letters.
    if "O" in re.sub(":[^:]*:", "", view.format):
        raise InvalidArgument("memory has Python's objects in it, but peers write bytes")
    # memoryview.cast() knows few formats; ctypes asks for none.
    array = (ctypes.c_ubyte * view.nbytes).from_buffer(view)
    return memoryview(array).cast("B"), ctypes.addressof(array)


def count_blocks(nbytes: int, block_len: int, num_blocks: Optional[int]) -> int:
    if block_len == 0:
        raise InvalidArgument("block_len is 0")
    if num_blocks is None:
        if nbytes % block_len:
            raise InvalidArgument(
                f"memory has {nbytes} bytes, which is no multiple of block_len {block_len};"
                " num_blocks says how many blocks are meant"
            )
        return nbytes // block_len
    blocks = _convert.unsigned("num_blocks", num_blocks)
    if blocks * block_len > nbytes:
        raise InvalidArgument(
            f"{blocks} blocks of {block_len} bytes do not fit into {nbytes} bytes"
        )
    return blocks


def options(
    *,
    backend: Union[Backend, str],
    agent_name: Optional[str],
    config: Union[str, Mapping[str, Any], None],
    nixl_lib_dir: Union[str, os.PathLike[str], None],
    nixl_plugin: Optional[str],
    nixl_num_threads: int,
    progress_thread: bool,
    file: Optional[tuple[int, int]],
    poll_budget_us: int,
) -> _abi.Options:
    """A dt_options. file: the descriptor behind the memory, and where the memory begins in it."""
    made = _abi.Options()
    made.struct_size = ctypes.sizeof(made)
    made.abi_version = _abi.ABI_VERSION
    made.backend = _backend(backend)
    made.agent_name = _convert.optional_text("agent_name", agent_name)
    if config is not None:
        made.config_json = _convert.text("config", config_text(config))
    if nixl_lib_dir is None and made.backend != Backend.LOCAL:
        nixl_lib_dir = _nixl_of_pip()
    if nixl_lib_dir is not None:
        made.nixl_lib_dir = _convert.text("nixl_lib_dir", os.fspath(nixl_lib_dir))
    made.nixl_plugin = _convert.optional_text("nixl_plugin", nixl_plugin)
    made.nixl_num_threads = _convert.unsigned("nixl_num_threads", nixl_num_threads, 32)
    made.progress_thread = bool(progress_thread)
    made.poll_budget_us = _convert.unsigned("poll_budget_us", poll_budget_us, 32)
    if file is not None:
        fd, offset = file
        made.region_fd = _convert.unsigned("region_fd", fd, 31)
        made.region_offset = _convert.unsigned("region_offset", offset)
        made.region_has_fd = True
    return made


def _backend(backend: Union[Backend, str]) -> int:
    if isinstance(backend, str):
        known = {one.name.lower(): int(one) for one in Backend}
        if backend.lower() not in known:
            raise InvalidArgument(f"backend is {backend!r}, but must be one of {list(known)}")
        return known[backend.lower()]
    # A newer library may know more than this package: it judges.
    return _convert.unsigned("backend", backend, 31)


def _nixl_of_pip() -> Optional[str]:
    """Where the packages nixl-cu12 and nixl-cu13 have put libnixl_capi.so."""
    if os.environ.get("DT_NIXL_LIB_DIR"):
        return None
    for folder in sys.path:
        pattern = os.path.join(glob.escape(folder), ".nixl*.mesonpy.libs", "libnixl_capi.so")
        found = sorted(os.path.dirname(file) for file in glob.glob(pattern))
        # One that Python has loaded already comes first: a second UCX in the process would be a risk.
        found.sort(
            key=lambda libraries: os.path.basename(libraries).split(".")[1] not in sys.modules
        )
        if found:
            return found[0]
    return None
