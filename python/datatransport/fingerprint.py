# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""Fingerprints of model configurations."""

from __future__ import annotations

import ctypes
import json
from typing import Any, Mapping, Union

from . import _convert
from ._library import lib
from .errors import check


def config_text(config: Union[str, Mapping[str, Any]]) -> str:
    """The text of a JSON object, which a mapping is made to."""
    if isinstance(config, str):
        return config
    # json knows no other mapping than dict.
    return json.dumps(dict(config) if isinstance(config, Mapping) else config)


def compute_fingerprint(config: Union[str, Mapping[str, Any]]) -> str:
    """16 hex digits that depend on what a configuration says, not on how it is written.

    Nodes whose fingerprints differ hold different things in their blocks. "" for an empty one.
    """
    out = ctypes.create_string_buffer(17)
    check(lib.dt_compute_fingerprint(_convert.text("config", config_text(config)), out))
    return out.value.decode("ascii")


def fingerprints_compatible(a: str, b: str) -> bool:
    """True if they are equal, or at least one of them is empty."""
    return bool(lib.dt_fingerprints_compatible(_convert.text("a", a), _convert.text("b", b)))
