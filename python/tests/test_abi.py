# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""_abi.py says what dt.h says."""

import ctypes
import re
import shutil
import subprocess
import tempfile
import unittest
from pathlib import Path

from datatransport import Backend, Stats, Status, _abi, log

ROOT = Path(__file__).resolve().parents[2]
HEADER = (ROOT / "include" / "dt.h").read_text()
STRUCTS = {
    "dt_options": _abi.Options,
    "dt_completion": _abi.Completion,
    "dt_notif": _abi.Notif,
    "dt_stats": _abi.Stats,
}
SCALARS = {
    "dt_status": ctypes.c_int32,
    "dt_backend": ctypes.c_int32,
    "dt_xfer_state": ctypes.c_int32,
    "dt_cancel_mode": ctypes.c_int32,
    "dt_log_level": ctypes.c_int32,
    "dt_xfer_id": ctypes.c_uint64,
    "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32,
    "uint64_t": ctypes.c_uint64,
    "size_t": ctypes.c_size_t,
    "bool": ctypes.c_bool,
    "void": None,
    # Passed as a plain pointer.
    "dt_log_fn": ctypes.c_void_p,
}
# What a pointer to it is in ctypes. Bytes and arrays that are only read go as c_void_p.
POINTERS = {
    "char": (ctypes.c_char_p,),
    "void": (ctypes.c_void_p,),
    "struct dt_transport": (ctypes.c_void_p,),
    "uint32_t": (ctypes.c_void_p,),
    "dt_xfer_id": (ctypes.c_void_p, ctypes.POINTER(ctypes.c_uint64)),
    "int32_t": (ctypes.POINTER(ctypes.c_int32),),
    "dt_xfer_state": (ctypes.POINTER(ctypes.c_int32),),
    "size_t": (ctypes.POINTER(ctypes.c_size_t),),
    "struct dt_options": (ctypes.POINTER(_abi.Options),),
    "struct dt_completion": (ctypes.POINTER(_abi.Completion),),
    "struct dt_notif": (ctypes.POINTER(_abi.Notif),),
    "struct dt_stats": (ctypes.POINTER(_abi.Stats),),
}


def without_comments():
    return re.sub(r"/\*.*?\*/|//[^\n]*", "", HEADER, flags=re.S)


def prototypes():
    """name: (what it returns, its parameters), as text without names of parameters."""
    found = {}
    for result, name, parameters in re.findall(
        r"^([\w ]+?[ *]+)(dt_\w+)\(([^)]*)\);", without_comments(), re.M
    ):
        types = [
            re.sub(r"\[\d+\]", "*", re.sub(r"\w+(\[\d+\])?$", r"\1", one.strip()))
            for one in parameters.split(",")
            if one.strip() != "void"
        ]
        found[name] = (result, types)
    return found


def allowed(text):
    """The types of ctypes that stand for one of C."""
    text = text.replace("const ", "").strip()
    stars = text.count("*")
    name = text.replace("*", "").strip()
    if stars == 0:
        return (SCALARS[name],)
    if stars == 2:
        return (ctypes.POINTER(ctypes.c_void_p),)
    return POINTERS[name]


class Header(unittest.TestCase):
    def test_all_functions_with_their_types(self):
        declared = prototypes()
        self.assertEqual(len(declared), 37)
        self.assertEqual(sorted(declared), sorted(_abi.PROTOTYPES))
        for name, (result, parameters) in declared.items():
            with self.subTest(name):
                ours = _abi.PROTOTYPES[name]
                self.assertIn(ours[0], allowed(result))
                self.assertEqual(len(ours[1]), len(parameters))
                for theirs, mine in zip(parameters, ours[1]):
                    self.assertIn(mine, allowed(theirs), theirs)

    def test_layouts_and_constants(self):
        compiler = shutil.which("cc")
        self.assertIsNotNone(compiler, "a C compiler is needed")
        wanted = {
            "DT_ABI_VERSION": _abi.ABI_VERSION,
            "DT_CANCEL_IMMEDIATE": 0,
            "DT_CANCEL_WAIT": 1,
            "DT_XFER_DONE": 0,
            "DT_XFER_PROC": 1,
            "DT_LOG_OFF": log._OFF,
            "DT_LOG_ERROR": log._ERROR,
            "DT_LOG_WARN": log._WARN,
            "DT_LOG_INFO": log._INFO,
            "DT_LOG_DEBUG": log._DEBUG,
        }
        for backend in Backend:
            wanted[f"DT_BACKEND_{backend.name}"] = int(backend)
        for status in Status:
            name = "DT_OK" if status == 0 else f"DT_ERR_{status.name}"
            wanted[name] = int(status)
        for name, struct in STRUCTS.items():
            wanted[f"sizeof({name})"] = ctypes.sizeof(struct)
            for field, _ in struct._fields_:
                place = getattr(struct, field)
                wanted[f"offsetof({name}, {field})"] = place.offset
                wanted[f"sizeof((({name} *)0)->{field})"] = place.size
        lines = "".join(f'    printf("%lld\\n", (long long)({one}));\n' for one in wanted)
        source = (
            '#include "dt.h"\n#include <stdio.h>\nint main(void)\n{\n' f"{lines}    return 0;\n}}\n"
        )
        with tempfile.TemporaryDirectory() as folder:
            file = Path(folder, "layout.c")
            file.write_text(source)
            program = Path(folder, "layout")
            subprocess.run(
                [compiler, f"-I{ROOT / 'include'}", str(file), "-o", str(program)],
                check=True,
            )
            printed = subprocess.run([program], stdout=subprocess.PIPE, check=True)
        found = dict(zip(wanted, map(int, printed.stdout.split())))
        self.assertEqual(found, wanted)

    def test_nothing_of_the_header_is_missing_here(self):
        text = without_comments()
        self.assertEqual(
            set(re.findall(r"#define (DT_ERR_\w+)", text)),
            {f"DT_ERR_{status.name}" for status in Status if status != 0},
        )
        self.assertEqual(
            set(re.findall(r"\b(DT_BACKEND_\w+) =", text)),
            {f"DT_BACKEND_{backend.name}" for backend in Backend},
        )
        for name, struct in STRUCTS.items():
            body = re.search(rf"typedef struct {name} \{{(.*?)\}}", text, re.S).group(1)
            fields = re.findall(r"(\w+);", body)
            self.assertEqual(fields, [field for field, _ in struct._fields_], name)
        self.assertEqual(list(Stats._fields), [field for field, _ in _abi.Stats._fields_][1:])


if __name__ == "__main__":
    unittest.main()
