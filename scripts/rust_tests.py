#!/usr/bin/env python3
"""Runs the Rust tests: what `cargo test` runs, but several of its programs at a time.

Most of them wait for other processes, and cargo runs one program after the other. What a program prints is in
build/rust/NAME.log, and is shown here if it fails. Prints the counts last.
"""

import concurrent.futures
import json
import os
import pathlib
import re
import subprocess
import sys
import time

ROOT = pathlib.Path(__file__).resolve().parent.parent
LOGS = ROOT / "build" / "rust"
CARGO = ["cargo", "test", "--locked"]
# When it is loaded, UCX changes the C library's memory functions in place, which takes longer than all else together
# where hundreds of processes load it for little work. Those C tests have that which load, map, fork and exit.
ENVIRONMENT = {"UCX_MEM_MMAP_HOOK_MODE": "none", **os.environ}
# Seconds; longer than any wait in a test.
PATIENCE = 600


def programs():
    """Builds them all. Their names, and the commands that run them; the last one is the documentation's tests."""
    subprocess.run([*CARGO, "--no-run"], cwd=ROOT, check=True)
    said = subprocess.run(
        [*CARGO, "--no-run", "--quiet", "--message-format=json"], cwd=ROOT, check=True, stdout=subprocess.PIPE
    )
    for line in said.stdout.splitlines():
        made = json.loads(line)
        if made.get("executable") and made["profile"]["test"]:
            yield made["target"]["name"], [made["executable"]]
    yield "documentation", [*CARGO, "--doc"]


def run(name, command):
    """Whether it passed; one line says so."""
    begin = time.monotonic()
    said = LOGS / f"{name}.log"
    try:
        with open(said, "wb") as log:
            ended = subprocess.run(
                command, cwd=ROOT, env=ENVIRONMENT, stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                timeout=PATIENCE,
            )
        how = "passed" if ended.returncode == 0 else f"FAILED with status {ended.returncode}"
    except subprocess.TimeoutExpired:
        how = f"FAILED: not ended after {PATIENCE} s"
    # What is tested may have ended the process.
    if how == "passed" and not re.search(rb"^test result: ok\.", said.read_bytes(), re.M):
        how = "FAILED: it ended before its tests did"
    print(f"{name:<24} {time.monotonic() - begin:4.0f} s  {how}", flush=True)
    return how == "passed"


def counts():
    """How many tests passed, and how many were left out."""
    said = "".join(log.read_text(errors="replace") for log in sorted(LOGS.glob("*.log")))
    results = re.findall(r"^test result: ok\. (\d+) passed; \d+ failed; (\d+) ignored", said, re.M)
    # What processes of a test run is called "process" and is no test of its own.
    processes = len(re.findall(r"^test process \.\.\. ok", said, re.M))
    return sum(int(passed) for passed, _ in results) - processes, sum(int(ignored) for _, ignored in results)


def main():
    LOGS.mkdir(parents=True, exist_ok=True)
    for old in LOGS.glob("*.log"):
        old.unlink()
    found = list(programs())
    with concurrent.futures.ThreadPoolExecutor(os.cpu_count() + 1) as pool:
        passed = list(pool.map(lambda program: run(*program), found))
    for (name, _), well in zip(found, passed):
        if not well:
            print(f"\n== {name}\n{(LOGS / f'{name}.log').read_text(errors='replace')}")
    done, ignored = counts()
    failed = passed.count(False)
    print(f"{done} Rust tests passed, {ignored} ignored" + (f"; {failed} programs failed" if failed else ""))
    sys.exit(0 if all(passed) and done > 0 else 1)


if __name__ == "__main__":
    main()
