# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""The library's log, as messages of the logging module."""

import logging
import threading
import unittest
import unittest.mock

import datatransport as dt
from datatransport import errors
from datatransport._library import lib
from support import finish, run, start

OPEN = (
    "import logging, signal, sys, threading\n"
    "import datatransport as dt\n"
    "def talk():\n"
    "    t = dt.Transport(bytearray(64), 64, backend='local')\n"
    "    t.import_handshake('me', t.export_handshake())\n"
    "    t.write_blocks('me', [0], [0])\n"
    "    t.wait(60)\n"
    "    return t\n"
)


class Log(unittest.TestCase):
    def setUp(self):
        self.addCleanup(dt.log_off)

    def talk(self):
        with dt.Transport(bytearray(64), 64, backend="local") as t:
            t.import_handshake("me", t.export_handshake())
            t.write_blocks("me", [0], [0])
            t.wait(60)

    def test_levels(self):
        with self.assertLogs("datatransport", logging.DEBUG) as caught:
            dt.log_to(level=logging.DEBUG)
            self.talk()
        levels = {one.levelno for one in caught.records}
        self.assertLessEqual({logging.DEBUG, logging.INFO}, levels)
        self.assertTrue(any("backend LOCAL" in one.getMessage() for one in caught.records))
        with self.assertLogs("mine", logging.DEBUG) as caught:
            dt.log_to(logging.getLogger("mine"), logging.INFO)
            self.talk()
        self.assertEqual({one.levelno for one in caught.records}, {logging.INFO})
        for level in (logging.WARNING, logging.ERROR, logging.CRITICAL + 5):
            with self.assertLogs("mine", logging.DEBUG) as caught:
                dt.log_to(logging.getLogger("mine"), level)
                self.talk()
                logging.getLogger("mine").info("the only one")
            self.assertEqual(len(caught.records), 1)

    def test_off(self):
        with self.assertLogs("datatransport", logging.DEBUG) as caught:
            dt.log_to(level=logging.DEBUG)
            dt.log_off()
            self.talk()
            logging.getLogger("datatransport").info("the only one")
        self.assertEqual(len(caught.records), 1)

    def test_arguments(self):
        self.assertRaises(TypeError, dt.log_to, "datatransport")
        self.assertRaises(TypeError, dt.log_to, level="INFO")
        self.assertRaises(TypeError, dt.log_to, level=None)

    def test_handlers_may_call_the_library(self):
        seen = []

        class Calling(logging.Handler):
            def emit(self, record):
                # All of it would be messages themselves, without end.
                dt.Transport(bytearray(64), 64, backend="local").close()
                dt.log_off()
                seen.append(threading.get_ident())

        logger = logging.Logger("calling", logging.DEBUG)
        logger.addHandler(Calling())
        dt.log_to(logger, logging.DEBUG)
        self.talk()
        self.assertEqual(set(seen), {threading.get_ident()})

    def test_a_handler_that_fails(self):
        source = OPEN + (
            "class Failing(logging.Logger):\n"
            "    def log(self, *arguments): raise RuntimeError('of the logger')\n"
            "dt.log_to(Failing('f'), logging.INFO)\n"
            "talk()\n"
            "print('went on')\n"
        )
        out, log, status = run(source)
        self.assertEqual((out, status), ("went on\n", 0))
        self.assertIn("RuntimeError: of the logger", log)
        # As the handlers of logging do.
        out, log, status = run("import logging\nlogging.raiseExceptions = False\n" + source)
        self.assertEqual((out, log, status), ("went on\n", "", 0))

    def test_what_leaves_python_comes_out_of_the_call_that_it_is_about(self):
        class Leaving(logging.Logger):
            armed = False

            def log(self, level, text, message):
                if self.armed:
                    self.messages.append(message)
                    raise SystemExit(message)

        logger = Leaving("leaving")
        dt.log_to(logger, logging.DEBUG)

        def opened():
            return dt.Transport(bytearray(64), 64, backend="local")

        def raises(function, *arguments):
            """Whether SystemExit came out of a call, and of none after it."""
            logger.messages, logger.armed = [], True
            try:
                function(*arguments)
                left = False
            except SystemExit as error:
                left = str(error) == logger.messages[0]
            finally:
                logger.armed = False
            self.assertTrue(logger.messages)
            dt.compute_fingerprint({})
            return left

        self.assertTrue(raises(opened))
        t = opened()
        blob = t.export_handshake()
        self.assertTrue(raises(t.import_handshake, "me", blob))
        t.close()

    def test_what_a_finalizer_logs_comes_out_of_no_other_call(self):
        class Talking:
            def __getattr__(self, name):
                errors.hold(SystemExit("of the finalizer"))
                return getattr(lib, name)

        t = dt.Transport(bytearray(64), 64, backend="local")
        # In the middle of a call, which has something of its own.
        errors.hold(SystemExit("of the call"))
        with unittest.mock.patch("sys.unraisablehook") as hook:
            with unittest.mock.patch("datatransport._handle.lib", Talking()):
                del t
        self.assertEqual(str(hook.call_args[0][0].exc_value), "of the finalizer")
        with self.assertRaisesRegex(SystemExit, "of the call"):
            dt.compute_fingerprint({})
        dt.compute_fingerprint({})

    def test_ctrl_c_inside_a_message(self):
        source = OPEN + (
            # What runs in the background is started with the signal ignored.
            "signal.signal(signal.SIGINT, signal.default_int_handler)\n"
            "class Interrupted(logging.Handler):\n"
            "    def emit(self, record): signal.raise_signal(signal.SIGINT)\n"
            "logger = logging.Logger('i')\n"
            "logger.addHandler(Interrupted())\n"
            "dt.log_to(logger, logging.INFO)\n"
            "try: talk()\n"
            "except KeyboardInterrupt: print('interrupted')\n"
        )
        self.assertEqual(run(source), ("interrupted\n", "", 0))

    def test_until_asked_for_the_environment_decides(self):
        programs = [start(OPEN + "talk()", log="info"), start(OPEN + "talk()")]
        programs.append(start(OPEN + "dt.log_off(); talk()", log="info"))
        (_, first, _), second, third = map(finish, programs)
        self.assertIn("libdatatransport: backend LOCAL", first)
        self.assertEqual((second, third), (("", "", 0), ("", "", 0)))

    def test_messages_at_the_end_of_the_interpreter(self):
        source = OPEN + (
            "import atexit\n"
            "logging.basicConfig(stream=sys.stdout, level=logging.DEBUG)\n"
            "dt.log_to(level=logging.DEBUG)\n"
            "class Late:\n"
            "    def __del__(self): self.talk()\n"
            "late = Late()\n"
            "late.talk = talk\n"
            "t = talk()\n"
            # Of what was registered last, the turn is first.
            "atexit.register(lambda: dt.log_to(level=logging.DEBUG))\n"
            "threading.Thread(target=t.wait, daemon=True).start()\n"
        )
        out, log, status = run(source)
        self.assertEqual(status, 0, log)
        self.assertNotIn("Fatal", log)


if __name__ == "__main__":
    unittest.main()
