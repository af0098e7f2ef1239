# SPDX-FileCopyrightText: The libdatatransport authors
# SPDX-License-Identifier: Apache-2.0
"""The plugin that vLLM loads. A module of its own: vLLM loads it wherever the package is installed, and where
nobody wants it, it may neither cost anything nor fail."""

import os


def plugin() -> None:
    """Lets vLLM use libdatatransport in this process, if the environment variable DATATRANSPORT_VLLM is 1.

    vLLM calls it in each of its processes. With the variable a deployment decides, not the mere presence
    of this package. What is wrong is raised then, and vLLM does not start.
    """
    if os.environ.get("DATATRANSPORT_VLLM") != "1":
        return
    import datatransport
    import datatransport.vllm

    datatransport.vllm.install()
    # Why a transfer has failed belongs to the log of the program. DT_LOG wants it elsewhere.
    if not os.environ.get("DT_LOG"):
        datatransport.log_to(datatransport.vllm.logger)
