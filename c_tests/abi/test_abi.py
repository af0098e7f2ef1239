#!/usr/bin/env python3
"""test_abi.py LIBRARY: that abi.py sees a change of the interface, and knows which ones break programs.

Each case is the header with one change that somebody might make.
"""
import contextlib
import io
import pathlib
import sys
import tempfile
import unittest
from unittest import mock

import abi

LIBRARY = sys.argv.pop(1)
HEADER = abi.HEADER.read_text()


class Changes(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.before = abi.facts_of_header(abi.HEADER, abi.MACHINES[0])

    def changed(self, old, new, where=1):
        """What compare says when `old` in the header becomes `new`; as main() would see it."""
        self.assertEqual(HEADER.count(old), where, f"{old} is another number of times in dt.h")
        with tempfile.TemporaryDirectory() as folder:
            header = pathlib.Path(folder) / "dt.h"
            header.write_text(HEADER.replace(old, new))
            return abi.compare(self.before, abi.facts_of_header(header, abi.MACHINES[0]))

    def check(self, changes, breaks, *texts):
        said = "\n".join(text for _, text in changes)
        self.assertEqual(any(one for one, _ in changes), breaks, said)
        for text in texts:
            self.assertIn(text, said)

    def test_nothing_changed(self):
        self.assertEqual(self.changed("uint32_t poll_budget_us;", "uint32_t   poll_budget_us;"), [])

    def test_a_field_at_the_end_of_a_struct_that_may_grow(self):
        self.check(self.changed("uint32_t poll_budget_us;", "uint32_t poll_budget_us; uint64_t more;"), False,
                   "struct dt_options has grown", "field dt_options.more is new: at 80, uint64_t")

    def test_a_field_in_the_middle(self):
        self.check(self.changed("uint64_t region_offset;", "uint64_t more; uint64_t region_offset;"), True,
                   "field dt_options.region_offset was at 64", "field dt_options.more is new")

    def test_a_field_where_older_programs_have_padding(self):
        self.check(self.changed("int32_t region_fd;", "bool more; int32_t region_fd;"), True,
                   "field dt_options.more is new (at 53, _Bool), but older programs have other bytes there")

    def test_a_field_of_another_type(self):
        self.check(self.changed("uint32_t poll_budget_us;", "int32_t poll_budget_us;"), True,
                   "field dt_options.poll_budget_us was at 76, uint32_t, and is at 76, int32_t")

    def test_a_field_in_a_struct_that_never_grows(self):
        self.check(self.changed("size_t msg_len;", "size_t msg_len; uint64_t more;"), True,
                   "struct dt_notif was 24 bytes", "in a struct that must not grow")

    def test_a_value_of_an_enum(self):
        self.check(self.changed("DT_BACKEND_NIXL = 2,", "DT_BACKEND_NIXL = 3,"), True,
                   "value dt_backend.DT_BACKEND_NIXL was 2, and is 3")

    def test_one_more_value_of_an_enum(self):
        self.check(self.changed("DT_BACKEND_NIXL = 2,", "DT_BACKEND_NIXL = 2, DT_BACKEND_NEXT = 3,"), False,
                   "value dt_backend.DT_BACKEND_NEXT is new")

    def test_a_status(self):
        self.check(self.changed("#define DT_ERR_BUSY -12", "#define DT_ERR_BUSY -16"), True,
                   "macro DT_ERR_BUSY was -12, and is -16")
        self.check(self.changed("#define DT_ERR_BUSY -12", ""), True, "macro DT_ERR_BUSY is gone")

    def test_a_type(self):
        self.check(self.changed("typedef int32_t dt_status;", "typedef int64_t dt_status;"), True,
                   "type dt_status was int32_t, and is int64_t")

    def test_a_function(self):
        declaration = "uint32_t dt_version(void);"
        self.check(self.changed(declaration, ""), True, "function dt_version is gone")
        self.check(self.changed(declaration, "uint64_t dt_version(void);"), True,
                   "function dt_version was uint32_t (void), and is uint64_t (void)")
        self.check(self.changed(declaration, declaration + "uint32_t dt_more(void);"), False,
                   "function dt_more is new")

    def test_the_initialiser(self):
        self.check(self.changed("DT_BACKEND_AUTO,    /* backend */", "DT_BACKEND_LOCAL,"), False,
                   "macro DT_OPTIONS_INIT was")


class Programs(unittest.TestCase):
    """What the command says, and does to the baseline."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.header = pathlib.Path(folder.name) / "dt.h"
        self.baseline = pathlib.Path(folder.name) / "baseline.txt"
        self.machines = abi.MACHINES[:1]
        self.header.write_text(HEADER)
        self.baseline.write_text(abi.BASELINE.read_text())

    def main(self, *arguments):
        out = io.StringIO()
        with mock.patch.multiple(abi, HEADER=self.header, BASELINE=self.baseline, MACHINES=self.machines), \
                mock.patch.object(sys, "argv", ["abi.py", *arguments, LIBRARY]), contextlib.redirect_stdout(out):
            try:
                abi.main()
            except SystemExit as end:
                return f"{out.getvalue()}{end.code}", False
        return out.getvalue(), True

    def replace(self, old, new):
        self.header.write_text(HEADER.replace(old, new))

    def test_a_function_that_the_library_does_not_have(self):
        self.replace("uint32_t dt_version(void);", "uint32_t dt_version(void); uint32_t dt_more(void);")
        self.assertIn("declares dt_more, which", self.main("check")[0])

    def test_a_function_that_the_header_does_not_have(self):
        self.replace("uint32_t dt_version(void);", "")
        self.assertIn("exports dt_version, which", self.main("check")[0])

    def test_a_layout_that_is_not_the_same_everywhere(self):
        self.machines = abi.MACHINES
        self.replace("uint32_t poll_budget_us;", "uint32_t poll_budget_us;\n#ifdef __aarch64__\nint more;\n#endif\n")
        self.assertIn("on aarch64-linux-gnu, compared with x86_64-linux-gnu", self.main("check")[0])

    def test_what_is_compatible_is_said_and_renewed(self):
        self.replace("uint32_t poll_budget_us;", "uint32_t poll_budget_us; uint64_t more;")
        said, fine = self.main("check")
        self.assertFalse(fine)
        self.assertIn("Programs that were compiled before still work", said)
        self.assertTrue(self.main("renew")[1])
        self.assertTrue(self.main("check")[1])

    def test_what_breaks_is_refused(self):
        self.replace("DT_BACKEND_NIXL = 2,", "DT_BACKEND_NIXL = 3,")
        said, fine = self.main("check")
        self.assertFalse(fine)
        self.assertIn("BREAKS      value dt_backend.DT_BACKEND_NIXL", said)
        self.assertIn("would BREAK", said)
        before = self.baseline.read_text()
        self.assertFalse(self.main("renew")[1])
        self.assertEqual(self.baseline.read_text(), before)
        self.assertTrue(self.main("renew", "--break")[1])
        self.assertTrue(self.main("check")[1])

    def test_another_soname_is_no_break(self):
        self.baseline.write_text(self.baseline.read_text().replace("SONAME: libdatatransport.so.", "SONAME: old.so."))
        self.replace("DT_BACKEND_NIXL = 2,", "DT_BACKEND_NIXL = 3,")
        self.assertIn("library SONAME was old.so.", self.main("check")[0])
        self.assertTrue(self.main("renew")[1])


unittest.main()
