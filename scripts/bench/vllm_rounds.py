"""vLLM's own NixlTransport beside dt_perf, in turns: a round of dt_perf, then one of vLLM, on blocks of one shape.

vllm_rounds.py OUTPUT DT_PERF [--rounds N] [--seconds S] [--pool BYTES]: writes JSON as dt_perf does. The files of
vLLM are unedited; of what they import from the rest of vLLM, a logger and a question about the platform are
stood in for here. Needs nixl_cu12, numpy and the folder of vLLM in PYTHONPATH.
"""

import argparse
import ctypes
import json
import logging
import math
import mmap
import os
import resource
import signal
import subprocess
import sys
import time
import types
from multiprocessing import Pipe, Process

KIB = 1 << 10
SHAPES = ((64 * KIB, 1024), (64 * KIB, 1), (4 * KIB, 1))
PEERS_IN_DT_PERF = "local,copy-nt,nixl-raw"
# Nothing here takes so long; who is lost ends the run.
PATIENCE_S = 60


def stand_in():
    """What the transport's files import from vLLM, in as far as they use it."""
    # Stopped or not, nobody outlives the one who counts.
    ctypes.CDLL(None).prctl(1, signal.SIGKILL)
    logger = types.ModuleType("vllm.logger")

    def init_logger(name):
        found = logging.getLogger(name)
        found.info_once, found.warning_once = found.info, found.warning
        return found

    logger.init_logger = init_logger
    platforms = types.ModuleType("vllm.platforms")
    platforms.current_platform = types.SimpleNamespace(is_rocm=lambda: False)
    sys.modules.update({"vllm.logger": logger, "vllm.platforms": platforms})
    # As vLLM itself sets it, before NIXL is loaded; the wheel has NIXL's package under another name.
    os.environ.setdefault("UCX_RCACHE_MAX_UNRELEASED", "1024")
    import nixl_cu12
    import nixl_cu12._api

    sys.modules.update({"nixl": nixl_cu12, "nixl._api": nixl_cu12._api})


def create(name, pool, block):
    """A transport with its default settings, over ordinary memory that has been touched."""
    from vllm.v1.kv_offload.tiering.p2p.data.nixl import NixlTransport

    memory = mmap.mmap(-1, pool, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS)
    ctypes.memset(ctypes.addressof(ctypes.c_char.from_buffer(memory)), 1 if name == "initiator" else 0, pool)
    transport = NixlTransport(name, memoryview(memory).cast("B", (pool // block, block)))
    if not transport.available:
        sys.exit("vllm_rounds.py: vLLM's transport does not find NIXL")
    return transport, memory


def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime


def target(control, pool, block):
    """Says who it is, what it has used, and whether the blocks of a list are there; without a list forgets all."""
    stand_in()
    transport, memory = create("target", pool, block)
    control.send((transport.get_agent_metadata(), transport.base_addr))
    while (asked := control.recv()) is not None:
        if not asked:
            memory[::block] = bytes(pool // block)
        control.send((cpu_s(), all(memory[index * block] == 1 for index in asked)))
    leave()


def initiator(control, pool, block, count, seconds):
    """Writes lists of scattered blocks for as long as a round is; sends the round's figures."""
    stand_in()
    import numpy as np

    transport, _memory = create("initiator", pool, block)
    metadata, base = control.recv()
    blocks = pool // block
    transport.add_remote_peer("target", metadata, base, blocks, block)
    random = np.random.default_rng(1)
    # Any blocks of the whole pool, one list after the other until all of it was taken.
    mine, theirs = (random.permutation(blocks).tolist() for _ in range(2))
    lists = [(mine[i:i + count], theirs[i:i + count]) for i in range(0, blocks - count + 1, count)]

    def write(local, remote, submits, polls):
        start = time.perf_counter_ns()
        xfer = transport.write_blocks("target", local, remote)
        if xfer is None:
            sys.exit("vllm_rounds.py: write_blocks has failed")
        now = time.perf_counter_ns()
        submits.append(now - start)
        while True:
            before = now
            result = transport.poll("target")
            now = time.perf_counter_ns()
            polls.append(now - before)
            if result.failed or result.peer_fault:
                sys.exit(f"vllm_rounds.py: a transfer has failed: {result}")
            if xfer in result.done:
                return now - start

    for local, remote in lists[:4096]:
        write(local, remote, [], [])
    control.send("ready")
    at = 0
    while control.recv() is not None:
        # The first after a rest is no measure of the rest.
        write(*lists[at % len(lists)], [], [])
        control.send("warm")
        control.recv()
        submits, polls, completions, cpu, start = [], [], [], cpu_s(), time.perf_counter()
        while time.perf_counter() - start < seconds:
            at += 1
            completions.append(write(*lists[at % len(lists)], submits, polls))
        took = time.perf_counter() - start
        control.send({
            "gb_per_s": len(completions) * count * block / took / 1e9,
            "transfers_per_s": len(completions) / took,
            "submit_ns": percentiles(submits), "poll_ns": percentiles(polls),
            "completion_ns": percentiles(completions),
            "cpu_s_per_gb": {"initiator": (cpu_s() - cpu) / (len(completions) * count * block / 1e9)},
            "written": (lists[at % len(lists)][1], len(completions) * count * block / 1e9),
        })
    leave()


def leave():
    # The wheel's libnl and the system's, in one process, do not survive exit().
    os._exit(0)


def percentiles(times):
    times.sort()
    # As dt_perf does it: that part of all times is no longer.
    at = lambda part: times[math.ceil(part * len(times)) - 1]
    return {"p50": at(0.5), "p99": at(0.99), "p999": at(0.999)}


def answer(control):
    if not control.poll(PATIENCE_S):
        sys.exit(f"vllm_rounds.py: vLLM's transport has said nothing for {PATIENCE_S} s")
    return control.recv()


def of_dt_perf(program, pool, block, count, seconds):
    command = [program, "--json", "--quiet", "--op=write", "--pattern=scattered", f"--pool={pool}", f"--blocks={count}",
               f"--block-size={block}", f"--subjects={PEERS_IN_DT_PERF}", "--rounds=1", f"--seconds={seconds}"]
    return json.loads(subprocess.run(command, check=True, stdout=subprocess.PIPE).stdout)


def take_turns(options, block, count):
    """(the document of dt_perf, with all rounds of its subjects and of vLLM's in its one result)"""
    ends = {role: Pipe() for role in ("target", "initiator")}
    processes = [
        Process(target=target, args=(ends["target"][1], options.pool, block)),
        Process(target=initiator, args=(ends["initiator"][1], options.pool, block, count, options.seconds)),
    ]
    (theirs, far), (ours, other) = ends["target"], ends["initiator"]
    document, rounds = None, []
    try:
        for process in processes:
            process.start()
        far.close()
        other.close()
        ours.send(answer(theirs))
        answer(ours)
        for _ in range(options.rounds):
            # While the other is measured, they stand still: their progress threads never rest.
            for process in processes:
                os.kill(process.pid, signal.SIGSTOP)
            one = of_dt_perf(options.dt_perf, options.pool, block, count, options.seconds)
            for process in processes:
                os.kill(process.pid, signal.SIGCONT)
            ours.send("go")
            answer(ours)
            theirs.send([])
            before, _ = answer(theirs)
            ours.send("measure")
            figures = answer(ours)
            written, gb = figures.pop("written")
            theirs.send(written)
            after, right = answer(theirs)
            if not right:
                sys.exit("vllm_rounds.py: vLLM's transport has reported blocks that are not there")
            figures["cpu_s_per_gb"]["target"] = (after - before) / gb
            rounds.append(figures)
            if document is None:
                document = one
            else:
                for row, more in zip(document["results"][0]["rows"], one["results"][0]["rows"], strict=True):
                    row["rounds"] += more["rounds"]
        for end in (ours, theirs):
            end.send(None)
        for process in processes:
            process.join(PATIENCE_S)
    finally:
        for process in processes:
            if process.is_alive():
                process.kill()
    result = document["results"][0]
    result["rounds"] = options.rounds
    result["rows"].append({"subject": "vllm", "rounds": rounds})
    for row in result["rows"]:
        row.pop("median", None)
    return document


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("output")
    parser.add_argument("dt_perf")
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=0.5)
    parser.add_argument("--pool", type=int, default=512 << 20)
    options = parser.parse_args()
    documents = [take_turns(options, *shape) for shape in SHAPES]
    for other in documents[1:]:
        documents[0]["results"] += other["results"]
    with open(options.output, "w", encoding="utf-8") as output:
        json.dump(documents[0], output, indent=1)


if __name__ == "__main__":
    main()
