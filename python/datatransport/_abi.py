# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""What dt.h declares: structs, constants and prototypes, and nothing else.

tests/test_abi.py compares this file with the header.
"""

from __future__ import annotations

import ctypes
from ctypes import (
    POINTER,
    Structure,
    c_bool,
    c_char_p,
    c_int32,
    c_size_t,
    c_uint32,
    c_uint64,
    c_void_p,
)

# major << 16 | minor of the interface that these declarations are of: DT_ABI_VERSION.
ABI_VERSION = 0x00000001

LOG_FUNCTION = ctypes.CFUNCTYPE(None, c_int32, c_char_p, c_void_p)


class Options(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("abi_version", c_uint32),
        ("backend", c_int32),
        ("agent_name", c_char_p),
        ("config_json", c_char_p),
        ("nixl_lib_dir", c_char_p),
        ("nixl_plugin", c_char_p),
        ("nixl_num_threads", c_uint32),
        ("progress_thread", c_bool),
        ("region_fd", c_int32),
        ("region_offset", c_uint64),
        ("region_has_fd", c_bool),
        ("poll_budget_us", c_uint32),
    ]


class Completion(Structure):
    _fields_ = [
        ("id", c_uint64),
        ("user_data", c_uint64),
        ("bytes", c_uint64),
        ("status", c_int32),
        ("reserved", c_uint32),
    ]


class Notif(Structure):
    _fields_ = [
        ("agent_name", c_char_p),
        ("msg", c_void_p),
        ("msg_len", c_size_t),
    ]


class Stats(Structure):
    _fields_ = [
        ("struct_size", c_size_t),
        ("submitted", c_uint64),
        ("done", c_uint64),
        ("failed", c_uint64),
        ("cancelled", c_uint64),
        ("draining", c_uint64),
        ("inflight", c_uint64),
        ("bytes_written", c_uint64),
        ("bytes_read", c_uint64),
        ("notifs_sent", c_uint64),
        ("notifs_received", c_uint64),
        ("polls", c_uint64),
        ("peers", c_uint64),
        ("notifs_refused", c_uint64),
    ]


_status = c_int32
_transport = c_void_p
# Bytes, index lists and lists of ids: c_void_p takes a bytes object without a copy.
_bytes = c_void_p
_size_out = POINTER(c_size_t)
_id_out = POINTER(c_uint64)

# name: (what it returns, its parameters)
PROTOTYPES = {
    "dt_status_str": (c_char_p, [_status]),
    "dt_version": (c_uint32, []),
    "dt_last_error": (c_char_p, []),
    "dt_create": (
        _status,
        [c_void_p, c_size_t, c_size_t, POINTER(Options), POINTER(c_void_p)],
    ),
    "dt_close": (_status, [_transport, c_uint32]),
    "dt_destroy": (None, [_transport]),
    "dt_base_addr": (c_uint64, [_transport]),
    "dt_num_blocks": (c_size_t, [_transport]),
    "dt_block_len": (c_size_t, [_transport]),
    "dt_config_fingerprint": (c_char_p, [_transport]),
    "dt_agent_name": (c_char_p, [_transport]),
    "dt_backend_kind": (c_int32, [_transport]),
    "dt_compute_fingerprint": (_status, [c_char_p, c_char_p]),
    "dt_fingerprints_compatible": (c_bool, [c_char_p, c_char_p]),
    "dt_get_agent_metadata": (_status, [_transport, c_void_p, c_size_t, _size_out]),
    "dt_add_remote_peer": (
        _status,
        [_transport, c_char_p, _bytes, c_size_t, c_uint64, c_size_t, c_size_t],
    ),
    "dt_remove_remote_peer": (_status, [_transport, c_char_p]),
    "dt_peer_status": (_status, [_transport, c_char_p]),
    "dt_export_handshake": (_status, [_transport, c_void_p, c_size_t, _size_out]),
    "dt_import_handshake": (_status, [_transport, c_char_p, _bytes, c_size_t]),
    "dt_write_blocks": (
        _status,
        [_transport, c_char_p, _bytes, _bytes, c_size_t, c_uint64, _id_out],
    ),
    "dt_read_blocks": (
        _status,
        [_transport, c_char_p, _bytes, _bytes, c_size_t, c_uint64, _id_out],
    ),
    "dt_poll": (
        _status,
        [_transport, c_char_p, POINTER(Completion), c_size_t, _size_out],
    ),
    "dt_wait": (
        _status,
        [_transport, c_char_p, POINTER(Completion), c_size_t, c_uint32, _size_out],
    ),
    "dt_cancel": (
        _status,
        [_transport, _bytes, c_size_t, c_int32, _id_out, _size_out],
    ),
    "dt_get_mem_descriptor": (_status, [_transport, c_void_p, c_size_t, _size_out]),
    "dt_add_remote_agent": (
        _status,
        [_transport, _bytes, c_size_t, _bytes, c_size_t, c_char_p, c_size_t, _size_out],
    ),
    "dt_post_read": (
        _status,
        [_transport, c_char_p, _bytes, _bytes, c_size_t, _bytes, c_size_t, _id_out],
    ),
    "dt_check_xfer_state": (_status, [_transport, c_uint64, POINTER(c_int32)]),
    "dt_xfer_state_str": (c_char_p, [c_int32]),
    "dt_release_xfer": (_status, [_transport, c_uint64]),
    "dt_get_new_notifs": (
        _status,
        [
            _transport,
            POINTER(Notif),
            c_size_t,
            c_void_p,
            c_size_t,
            _size_out,
            _size_out,
        ],
    ),
    "dt_send_notif": (_status, [_transport, c_char_p, _bytes, c_size_t]),
    "dt_get_stats": (_status, [_transport, POINTER(Stats)]),
    # LOG_FUNCTION as a plain pointer, so that None stands for NULL.
    "dt_set_log_callback": (None, [c_void_p, c_void_p, c_int32]),
    "dt_region_alloc": (_status, [c_size_t, POINTER(c_void_p), POINTER(c_int32)]),
    "dt_region_free": (None, [c_void_p, c_size_t, c_int32]),
}


def declare(library: ctypes.CDLL) -> None:
    """Tells ctypes the prototypes of a library."""
    for name, (result, parameters) in PROTOTYPES.items():
        function = getattr(library, name)
        function.restype = result
        function.argtypes = parameters
