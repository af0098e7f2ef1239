# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""Bytes that tell which block they are."""

import hashlib


def pattern(seed, index, length):
    """The content of a block: no two blocks, and no two pieces of one, are alike."""
    return hashlib.shake_128(f"{seed} {index}".encode()).digest(length)
