# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""What pip makes of the package, used from outside the source tree."""

import email
import os
import re
import shutil
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

import datatransport
import vllm_node
from support import PATIENCE_S, ROOT, finish, skip

# To build without a network, once it is here.
SETUPTOOLS = (
    "setuptools==80.9.0"
    " --hash=sha256:062d34222ad13e0cc312a4c02d73f059e86a4acbfbdea8f8f76b28c99f306922"
)
# What pip does in the end.
BUILD = (
    "import os, sys\n"
    "from setuptools import build_meta\n"
    "folder, library = sys.argv[1:]\n"
    "for kind in ('pure', 'bundled'):\n"
    "    os.chdir(os.path.join(folder, kind, 'python'))\n"
    "    if kind == 'bundled': os.environ['DATATRANSPORT_LIBRARY'] = library\n"
    "    build_meta.build_wheel(os.path.dirname(os.getcwd()))\n"
)
TRANSFER = (
    "import datatransport as dt\n"
    "with dt.Transport(dt.Region(8192), 4096, backend='local') as t:\n"
    "    t.import_handshake('me', t.export_handshake())\n"
    "    t.block(0)[:] = b'a' * 4096\n"
    "    t.write_blocks('me', [0], [1])\n"
    "    t.wait(60)\n"
    "    print(bytes(t.block(1)) == b'a' * 4096, dt.library_path())\n"
)
# With vLLM's own code for plugins and its own log; of vLLM only what needs torch is missing.
PLUGIN = """
import os, sys
sys.path.insert(1, sys.argv[1])
import vllm_stand_in
vllm_stand_in.stand_in()
vllm_stand_in.nixl()
import vllm.logger, vllm.plugins

vllm.logger._configure_vllm_root_logger()
library = os.environ["DATATRANSPORT_LIBRARY"]

def start(**settings):
    for name in "DATATRANSPORT_VLLM", "VLLM_PLUGINS":
        os.environ.pop(name, None)
    os.environ.update({"DATATRANSPORT_LIBRARY": library, **settings})
    vllm.plugins.plugins_loaded = False
    print("start", settings)
    try:
        vllm.plugins.load_general_plugins()
    except ImportError as error:
        print("ImportError:", error)
    for original in vllm_stand_in.original_push(), vllm_stand_in.original_pull():
        print(original.__module__)
    # As in each of vLLM's processes: it is loaded once.
    vllm.plugins.load_general_plugins()

# Where nobody wants it, it may not even be able to work.
start(DATATRANSPORT_LIBRARY="/nowhere")
start(DATATRANSPORT_LIBRARY="/nowhere", DATATRANSPORT_VLLM="0")
start(DATATRANSPORT_LIBRARY="/nowhere", DATATRANSPORT_VLLM="1", VLLM_PLUGINS="other")
start(DATATRANSPORT_LIBRARY="/nowhere", DATATRANSPORT_VLLM="1")
start(DATATRANSPORT_VLLM="1", VLLM_PLUGINS="other,datatransport")
start(DATATRANSPORT_VLLM="1")
# The library has something to say about that.
import datatransport
os.environ["DT_NIXL_LIB_DIR"] = "/nowhere"
datatransport.Transport(bytearray(64), 64).close()
sys.stdout.flush()
# The original's bindings may crash when they are torn down.
os._exit(0)
"""
OURS = ["datatransport.vllm.push", "datatransport.vllm.pull"]
THEIRS = [
    "vllm.v1.kv_offload.tiering.p2p.data.nixl",
    "vllm.distributed.ec_transfer.ec_connector.cpu.data.nixl",
]


def setuptools():
    """A folder with it, which is fetched the first time."""
    folder = ROOT / "build" / "python" / "setuptools"
    pinned = folder / ".pinned"
    if not pinned.exists() or pinned.read_text() != SETUPTOOLS:
        shutil.rmtree(folder, ignore_errors=True)
        with tempfile.NamedTemporaryFile("w", suffix=".txt") as file:
            print(SETUPTOOLS, file=file, flush=True)
            command = [sys.executable, "-m", "pip", "--disable-pip-version-check", "install"]
            command += ["--quiet", "--no-deps", "--require-hashes"]
            command += ["--target", str(folder), "--requirement", file.name]
            quiet = {**os.environ, "PIP_ROOT_USER_ACTION": "ignore"}
            if subprocess.run(command, env=quiet).returncode != 0:
                skip("pip install ./python: setuptools could not be fetched")
        # Written last: what was interrupted is fetched again.
        pinned.write_text(SETUPTOOLS)
    return str(folder)


def run(command, environment):
    """What it has said on stdout and stderr, and its status."""
    program = subprocess.Popen(
        command,
        env=environment,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    return finish(program)


class Wheels(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.folder = Path(tempfile.mkdtemp())
        cls.addClassCleanup(shutil.rmtree, cls.folder)
        for kind in ("pure", "bundled"):
            # setuptools leaves its things in the sources.
            unwanted = shutil.ignore_patterns("tests", "build", "*.egg-info", "__pycache__")
            shutil.copytree(ROOT / "python", cls.folder / kind / "python", ignore=unwanted)
        environment = {**os.environ, "PYTHONPATH": setuptools()}
        library = environment.pop("DATATRANSPORT_LIBRARY")
        build = [sys.executable, "-S", "-c", BUILD, str(cls.folder), library]
        out, log, status = run(build, environment)
        if status != 0 or "Deprecat" in log:
            raise AssertionError(f"{out}\n{log}")
        cls.wheels = {kind: next((cls.folder / kind).glob("*.whl")) for kind in ("pure", "bundled")}

    def names(self, kind):
        with zipfile.ZipFile(self.wheels[kind]) as wheel:
            return wheel.namelist()

    def site(self, kind):
        """What pip would install."""
        site = self.folder / kind / "site"
        with zipfile.ZipFile(self.wheels[kind]) as wheel:
            wheel.extractall(site)
        return str(site)

    def use(self, kind, **named):
        """Runs a transfer with what a wheel has installed, and returns what it has printed."""
        environment = {**os.environ, "PYTHONPATH": self.site(kind), **named}
        if "DATATRANSPORT_LIBRARY" not in named:
            environment.pop("DATATRANSPORT_LIBRARY")
        return subprocess.run(
            [sys.executable, "-S", "-c", TRANSFER],
            cwd=str(self.folder),
            env=environment,
            stdout=subprocess.PIPE,
            text=True,
            timeout=PATIENCE_S,
        ).stdout.strip()

    def test_with_the_library_inside(self):
        self.assertRegex(
            self.wheels["bundled"].name, r"^datatransport-[\d.]+-py3-none-linux_\w+.whl$"
        )
        self.assertIn("datatransport/lib/libdatatransport.so.0", self.names("bundled"))
        inside = self.folder / "bundled/site/datatransport/lib/libdatatransport.so.0"
        self.assertEqual(self.use("bundled"), f"True {inside}")

    def test_with_the_library_that_is_installed(self):
        self.assertRegex(self.wheels["pure"].name, r"^datatransport-[\d.]+-py3-none-any.whl$")
        self.assertFalse([name for name in self.names("pure") if ".so" in name])
        prefix = self.folder / "prefix" / "lib"
        prefix.mkdir(parents=True)
        installed = prefix / "libdatatransport.so.0"
        shutil.copyfile(os.environ["DATATRANSPORT_LIBRARY"], installed)
        self.assertEqual(self.use("pure", LD_LIBRARY_PATH=str(prefix)), f"True {installed}")
        # A folder will do, too.
        self.assertEqual(self.use("pure", DATATRANSPORT_LIBRARY=str(prefix)), f"True {installed}")
        (prefix / "pkgconfig").mkdir()
        (prefix / "pkgconfig" / "datatransport.pc").write_text(
            f"libdir={prefix}\nName: datatransport\nDescription: it\nVersion: 0.1.0\n"
        )
        if shutil.which("pkg-config") is None:
            skip("pkg-config, which knows where the library is installed: there is none")
        found = self.use("pure", PKG_CONFIG_PATH=str(prefix / "pkgconfig"))
        self.assertEqual(found, f"True {installed}")

    def test_the_plugin_of_vllm(self):
        vllm_node.need()
        environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parent)}
        environment.update(VLLM_CONFIGURE_LOGGING="1", NIXL_LOG_LEVEL="FATAL")
        plugin = [vllm_node.python()[0], *vllm_node.QUICK, "-c", PLUGIN, self.site("pure")]
        out, log, status = run(plugin, environment)
        self.assertEqual((log, status), ("", 0), out + log)
        first, *starts = out.split("start {")[1:]
        for text in (first, *starts[:2]):
            self.assertEqual(text.split("\n")[-3:], [*THEIRS, ""])
            self.assertNotIn("libdatatransport", text)
        # vLLM itself would not start here, and its last line says why.
        self.assertRegex(starts[2], "\nImportError: libdatatransport.so.0 was not found")
        self.assertIn(": /nowhere: there is no such file\n", starts[2])
        for name in "NixlTransport", "NixlDataTransport":
            line = rf"INFO .*\] vLLM's {name} is that of libdatatransport \d+\.\d+\.\d+ \(/.+\)\n"
            self.assertEqual([len(re.findall(line, text)) for text in starts], [0, 0, 0, 1, 0], out)
        for text in starts[3:]:
            self.assertTrue(set(OURS) <= set(text.split("\n")), text)
        # In vLLM's log is also what the library says.
        self.assertRegex(starts[4], r"WARNING .*\] backend LOCAL: .*/nowhere")

    def test_what_is_in_them(self):
        for kind in self.wheels:
            names = self.names(kind)
            self.assertIn("datatransport/py.typed", names)
            self.assertIn("datatransport_vllm.py", names)
            for terms in ("LICENSE", "THIRD_PARTY_NOTICES"):
                self.assertTrue([name for name in names if name.endswith(f"/{terms}")], terms)
            package = ROOT / "python" / "datatransport"
            here = {str(path.relative_to(package.parent)) for path in package.rglob("*.py")}
            self.assertLessEqual(here, set(names))
            with zipfile.ZipFile(self.wheels[kind]) as wheel:
                for name in names:
                    if name.endswith(".py"):
                        terms = wheel.read(name).split(b"\n")[:2]
                        self.assertIn(b"# SPDX-License-Identifier: Apache-2.0", terms, name)
                (metadata,) = (name for name in names if name.endswith(".dist-info/METADATA"))
                found = email.message_from_bytes(wheel.read(metadata))
            for field, value in (
                ("Name", "datatransport"),
                ("Version", datatransport.__version__),
                ("License-Expression", "Apache-2.0"),
                ("Requires-Python", ">=3.9"),
                ("Author", "The libdatatransport authors"),
                ("Description-Content-Type", "text/markdown"),
            ):
                self.assertEqual(found[field], value)
            self.assertIn("# datatransport\n", found.get_payload())


if __name__ == "__main__":
    unittest.main()
