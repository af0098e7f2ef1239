#!/usr/bin/env python3
"""That rust_tests.py takes nothing for passed that did not pass."""

import contextlib
import io
import pathlib
import tempfile
import unittest
import unittest.mock

import rust_tests

WELL = "echo 'test result: ok. 1 passed; 0 failed; 0 ignored'"


class Programs(unittest.TestCase):
    def said(self, script):
        with tempfile.TemporaryDirectory() as folder, contextlib.redirect_stdout(io.StringIO()) as line:
            with unittest.mock.patch("rust_tests.LOGS", pathlib.Path(folder)):
                passed = rust_tests.run("name", ["sh", "-c", script])
        return passed, line.getvalue()

    def test_only_what_says_so_has_passed(self):
        for script, passes, words in (
            (WELL, True, "passed"),
            (f"{WELL}; exit 101", False, "FAILED with status 101"),
            (f"{WELL}; kill -SEGV $$", False, "FAILED with status -11"),
            # A call of exit() in what is tested.
            ("echo running 1 test", False, "FAILED: it ended before its tests did"),
        ):
            with self.subTest(script):
                passed, line = self.said(script)
                self.assertEqual(passed, passes)
                self.assertIn(words, line)

    def test_what_hangs_is_ended(self):
        with unittest.mock.patch("rust_tests.PATIENCE", 0.1):
            passed, line = self.said("exec sleep 1000")
        self.assertFalse(passed)
        self.assertIn("not ended after 0.1 s", line)


if __name__ == "__main__":
    unittest.main()
