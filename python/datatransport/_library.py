# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""Finds libdatatransport.so.0, checks its version and loads it."""

from __future__ import annotations

import ctypes
import os
import sys
from typing import Iterator, NamedTuple

from . import _abi

FILE_NAME = "libdatatransport.so.0"
VARIABLE = "DATATRANSPORT_LIBRARY"

_package = os.path.dirname(os.path.realpath(__file__))


class _Place(NamedTuple):
    what: str
    # A path; a bare file name, which is for the dynamic loader to find; "": no such place.
    file: str


def _named() -> Iterator[_Place]:
    path = os.environ.get(VARIABLE)
    if path:
        if os.path.isdir(path):
            path = os.path.join(path, FILE_NAME)
        # Without a slash dlopen() would search for it, somewhere else than here.
        yield _Place(f"the environment variable {VARIABLE}", os.path.abspath(path))


def _usual() -> Iterator[_Place]:
    yield _Place("the package", os.path.join(_package, "lib", FILE_NAME))
    # LD_LIBRARY_PATH and the cache of ldconfig.
    yield _Place("the dynamic loader", FILE_NAME)
    yield _Place("Python's prefix", os.path.join(sys.prefix, "lib", FILE_NAME))
    folder = _pkg_config()
    yield _Place("pkg-config", os.path.join(folder, FILE_NAME) if folder else "")
    # python/datatransport of the sources; cargo gives the file this name.
    root = os.path.dirname(os.path.dirname(_package))
    if os.path.isfile(os.path.join(root, "include", "dt.h")):
        built = os.path.join(root, "target", "release", "libdatatransport.so")
        yield _Place("the source tree", built)


def _pkg_config() -> str:
    """The folder that the installed datatransport.pc names, or ""."""
    # Not needed where the library is found at once, and slow to import.
    import subprocess

    command = ["pkg-config", "--variable=libdir", "datatransport"]
    try:
        answer = subprocess.run(
            command,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            timeout=10,
        )
    except (OSError, subprocess.TimeoutExpired):
        return ""
    return os.fsdecode(answer.stdout).strip() if answer.returncode == 0 else ""


def _open(file: str) -> ctypes.CDLL:
    """Raises OSError with the reason if this is no library that the package can use."""
    if not file:
        raise OSError("it does not know datatransport")
    if os.path.isabs(file) and not os.path.exists(file):
        raise OSError("there is no such file")
    library = ctypes.CDLL(file)
    try:
        library.dt_version.restype = ctypes.c_uint32
        version = library.dt_version()
    except AttributeError:
        raise OSError("it is another library: it has no dt_version") from None
    major, minor = version >> 16, version >> 8 & 0xFF
    wanted_major, wanted_minor = _abi.ABI_VERSION >> 16, _abi.ABI_VERSION & 0xFFFF
    if major != wanted_major or minor < wanted_minor:
        raise OSError(
            f"it is version {major}.{minor}.{version & 0xFF}, and this package needs"
            f" {wanted_major}.{wanted_minor} or a newer one of {wanted_major}"
        )
    try:
        _abi.declare(library)
    except AttributeError as missing:
        raise OSError(f"it is not complete: {missing}") from None
    return library


def _find() -> ctypes.CDLL:
    # Who names a file wants that one, and no other.
    places = list(_named())
    looked = []
    for place in places or _usual():
        try:
            return _open(place.file)
        except OSError as error:
            reason = str(error)
            # The loader's own sentences begin with the file.
            if not reason.startswith(place.file):
                reason = f"{place.file}: {reason}"
            looked.append(f"\n  {place.what}: {reason}")
    advice = f"let {VARIABLE} name the file"
    if not places:
        advice = f"install libdatatransport where these look (LD_LIBRARY_PATH, PKG_CONFIG_PATH), or {advice}"
    raise ImportError(
        f"{FILE_NAME} was not found. Looked here:{''.join(looked)}\n{advice[0].upper()}{advice[1:]}.",
        name="datatransport",
    )


def library_path() -> str:
    """The file of the library that was loaded."""
    address = ctypes.cast(lib.dt_version, ctypes.c_void_p).value or 0
    with open("/proc/self/maps") as maps:
        for line in maps:
            span, *_, path = line.rstrip("\n").split(maxsplit=5)
            first, last = (int(end, 16) for end in span.split("-"))
            if first <= address < last:
                return path
    raise OSError("the library is not in /proc/self/maps")


def library_version() -> tuple[int, int, int]:
    """Major, minor and patch of the library that was loaded."""
    version = int(lib.dt_version())
    return version >> 16, version >> 8 & 0xFF, version & 0xFF


lib = _find()
