# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""Only for what pyproject.toml cannot say: the library goes into the wheel if it was named.

With DATATRANSPORT_LIBRARY in the environment the wheel has that file in it, and is for this platform.
Without it there is nothing compiled in the wheel, and the package uses the library that is installed.
"""

import os
import shutil

from setuptools import Distribution, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_py import build_py

library = os.environ.get("DATATRANSPORT_LIBRARY") or None


class BuildWithLibrary(build_py):
    def run(self):
        super().run()
        if library and not self.editable_mode:
            folder = os.path.join(self.build_lib, "datatransport", "lib")
            os.makedirs(folder, exist_ok=True)
            shutil.copyfile(library, os.path.join(folder, "libdatatransport.so.0"))


class Package(Distribution):
    def has_ext_modules(self):
        return library is not None


class Wheel(bdist_wheel):
    def get_tag(self):
        tag = super().get_tag()
        # It is for any Python: ctypes loads it.
        return ("py3", "none", tag[2]) if library else tag


setup(distclass=Package, cmdclass={"build_py": BuildWithLibrary, "bdist_wheel": Wheel})
