"""How both classes make their transport."""

from __future__ import annotations

import importlib.util
import logging
import os
import sys
from pathlib import Path
from typing import Any, Optional

from datatransport import Backend, Transport

logger = logging.getLogger("datatransport.vllm")

# Seconds that an orderly end may take. Longer than what a peer that polls needs to take the last messages,
# and short beside vLLM's own patience at shutdown.
CLOSE_TIMEOUT_S = 3.0


def open_transport(
    agent_name: str,
    memory: Any,
    num_blocks: int,
    block_len: int,
    backend: Optional[Backend] = None,
    plugin: Optional[str] = None,
) -> Transport:
    """A transport that is to its peers what vLLM's own is.

    NIXL, unless backend or $DT_BACKEND wants another one. Not the library's own default, which is LOCAL
    where NIXL cannot be loaded: peers with the original class could not talk to that.
    """
    if backend is None:
        backend = Backend.AUTO if os.environ.get("DT_BACKEND") else Backend.NIXL
    return Transport(
        memory,
        block_len,
        num_blocks=num_blocks,
        backend=backend,
        agent_name=agent_name,
        nixl_lib_dir=_nixl_lib_dir(),
        nixl_plugin=plugin,
        # Peers are served between polls, too, as the original's progress thread does it.
        progress_thread=True,
    )


def close_transport(transport: Transport) -> None:
    """Closes it, by force if it does not close by itself; nothing touches its memory afterwards."""
    try:
        transport.close(CLOSE_TIMEOUT_S)
    except Exception as reason:
        logger.warning("closing transport %s by force: %s", transport.agent_name, reason)
        transport.destroy()


def _nixl_lib_dir() -> Optional[str]:
    """Where the NIXL is that vLLM itself would use, unless the library is told by $DT_NIXL_LIB_DIR.

    NIXL's wheels have their libraries where only their own Python module finds them. One that is imported
    already comes first: two copies of UCX in one process do not go well together.
    """
    if os.environ.get("DT_NIXL_LIB_DIR"):
        return None
    names = ("nixl_cu12", "nixl_cu13")
    for name in sorted(names, key=lambda name: name not in sys.modules):
        try:
            spec = importlib.util.find_spec(name)
        except (ImportError, ValueError):
            continue
        for folder in (spec and spec.submodule_search_locations) or ():
            libraries = Path(folder).parent / f".{name}.mesonpy.libs"
            if (libraries / "libnixl_capi.so").is_file():
                return str(libraries)
    return None
