# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""How both classes make their transport."""

from __future__ import annotations

import logging
import os
from typing import Any, Optional

from datatransport import Backend, Transport

# Below vLLM's own, so that what is set for its log holds for this.
logger = logging.getLogger("vllm.datatransport")

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
    transport = Transport(
        memory,
        block_len,
        num_blocks=num_blocks,
        backend=backend,
        agent_name=agent_name,
        nixl_plugin=plugin,
        # Peers are served between polls, too, as the original's progress thread does it.
        progress_thread=True,
    )
    logger.info(
        "transport %s: %d blocks of %d bytes over %s",
        agent_name,
        num_blocks,
        block_len,
        transport.backend.name,
    )
    return transport


def close_transport(transport: Transport) -> None:
    """Closes it, by force if it does not close by itself; nothing touches its memory afterwards."""
    try:
        transport.close(CLOSE_TIMEOUT_S)
    except Exception as reason:
        logger.warning("closing transport %s by force: %s", transport.agent_name, reason)
        transport.destroy()
