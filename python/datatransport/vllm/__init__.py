# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""vLLM's two NIXL transports over this library, for vLLM 0.33.

NixlTransport stands for the class of this name of vLLM's P2P tier (KV blocks, written to peers),
NixlDataTransport for that of its encoder cache (embeddings, read by consumers). Constructor arguments,
methods, properties and results are the originals', so that vLLM's own session code runs unchanged; and
on the wire they are NIXL, so that a peer with the original class cannot tell. vLLM itself is not
needed to import this package. install() puts the classes where vLLM looks for its own.

Which backend moves the bytes: NIXL, unless the environment variable DT_BACKEND says "local", or the
list `backends` of NixlTransport is ["LOCAL"] (in vLLM's configuration: of the p2p tier's entry). LOCAL
needs this library on both sides, and no NIXL on either. Other names in `backends` are NIXL's plugins;
one at a time. NIXL's own libraries are those of $DT_NIXL_LIB_DIR, or of the installed wheel (nixl_cu12
or nixl_cu13).

What differs from the originals, all of it on this side of the wire:

    what happens                         original                     here
    -----------------------------------  ---------------------------  ---------------------------------
    cancel(mode="wait") of what runs     returned; surfaces as done   the same, or as failed: what had
                                                                      not begun does not begin
    cancel(), bytes afterwards           keep landing                 stop as soon as they can
    remove_remote_peer() while writes    ids stay in flight for       each surfaces once, as failed,
      are in flight                      good; bytes keep landing     when nothing touches memory any
                                                                      more; no fault
    remove_remote_peer() while reads     check raises at once; bytes  PROC until nothing touches memory
      are in flight                      keep landing                 any more, then the check raises
    a failed transfer                    may still be landing         touches no memory any more
    adding a peer that is known          error where it has           replaces the registration, whose
                                         restarted, otherwise both    transfers end; the encoder's same
                                         registrations are there      data again change nothing
    adding a peer                        in a thread, in time that    in the call, which takes some
                                         grows with the blocks        milliseconds; the future is done
    add_remote_peer, other block_len     taken; each write refused    refused
    addresses that wrap, num_blocks 0    crash of the peer,           refused
                                         IndexError
    two ids for one agent                removing one breaks both     independent
    index of 2^31 or more                OverflowError                None and a strike
    indexes that are no integers         cut to integers              TypeError
    texts of refusals                    nixlInvalidParamError: ...   say which argument, and why
    a peer that dies, while idle         seen by the next write       LOCAL: seen by poll(), too
    add_remote_peer, errors              nixl...Error, RuntimeError,  DataTransportError (see
                                         IndexError                   datatransport), RuntimeError after
                                                                      close()
    messages of reads                    any length                   up to 64 KiB
    threads                              callers take turns           any
    num_threads                          UCX's worker threads         taken and ignored: transfers are
                                                                      posted in pieces that they do not
                                                                      speed up
    `backends` with several names        each is loaded               ValueError

What does not differ: refused writes return None; three of them or of failed transfers in a row, with no
success between, are a fault of the peer, and a lost endpoint is one at once (NIXL_ERR_REMOTE_DISCONNECT);
poll(peer_id) tells it until remove_remote_peer(). write_blocks() and poll() do not raise for what a peer
does; check_xfer_state() does.
"""

from ._install import install
from ._open import logger
from .pull import NixlDataTransport
from .push import CancelMode, NixlTransport, PollResult

__all__ = ["CancelMode", "NixlDataTransport", "NixlTransport", "PollResult", "install", "logger"]
