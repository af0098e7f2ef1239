"""What the library must reach, and whether this run has reached it.

Every gate looks at the worst shape that it speaks of. The figure is the median of what the rounds gave. The worst of
many shapes is often one that had bad luck, so a transfer that falls short is measured once more, and that counts. One
that had good luck is not looked for: this makes the gates milder, and the report says so.

gates.py FOLDER: what is to be measured once more, as dt_perf's options, one run in a line.
"""

import sys
from typing import NamedTuple, Optional

from results import Results, Spread, difference, ratio, row, spread
from text import digits, share, size, time

KIB, MIB = 1 << 10, 1 << 20
RUNS = 8192
AGAIN = "again"  # how the names of such runs begin


def exact(value):
    """A ratio beside a limit of two digits needs one more, so that what is short of it does not look like it."""
    return f"{value:.3f}" if abs(value) < 10 else digits(value)


class Candidate(NamedTuple):
    """What a gate speaks of: one shape in one run, and its figure if it was measured."""

    shape: str
    run: str
    figure: Optional[Spread]
    again: tuple = ()  # dt_perf's options to measure it once more, if it can be


class Gate:
    """One line of the table: at_least or at_most is the limit of what candidates(results) yields."""

    def __init__(self, number, what, candidates, at_least=None, at_most=None, form=exact):
        self.number = number
        self.what = what
        self.candidates = candidates
        self.at_least = at_least
        self.at_most = at_most
        self.form = form

    @property
    def limit(self):
        if self.at_least is not None:
            return f"at least {self.form(self.at_least)}"
        return f"at most {self.form(self.at_most)}"

    def holds(self, candidate):
        reached = candidate.figure.median
        return reached >= self.at_least if self.at_least is not None else reached <= self.at_most

    def measured(self, results):
        return [found for found in self.candidates(results) if found.figure is not None]

    def judge(self, results):
        """(shape, run, Spread, holds) of the worst shape, or None if nothing was measured."""
        measured = self.measured(results)
        if not measured:
            return None
        choose = min if self.at_least is not None else max
        worst = choose(measured, key=lambda found: found.figure.median)
        return worst.shape, worst.run, worst.figure, self.holds(worst)


def shape_of(result):
    blocks = f"{result['blocks']:,} x " if result["blocks"] > 1 else ""
    return f"{result['op']}, {blocks}{size(result['block_size'])}, {result['pattern']}"


def transfers(compare, over, under, metric, sizes=None, bytes_least=0, one=False, **shape):
    """Two subjects on the shapes of the matrix. What was run beside vLLM, or for a curve, is not part of it."""

    def figure(result):
        return compare(row(result, over), row(result, under), metric)

    def candidates(results):
        for result in results.find("transfer", **shape):
            single = result["blocks"] == 1
            if (
                result["run"].startswith(("scaling", "vllm", AGAIN))
                or single != one
                or (sizes and result["block_size"] not in sizes)
                or result["blocks"] * result["block_size"] < bytes_least
            ):
                continue
            same = {key: result[key] for key in ("ucx_tls", "op", "pattern", "block_size", "blocks")}
            counts = next((r for r in results.find("transfer", run=AGAIN, **same) if figure(r)), result)
            options = (f"--{key.replace('_', '-')}={value}" for key, value in same.items() if value is not None)
            again = (*options, f"--subjects={over},{under}")
            yield Candidate(shape_of(result), counts["run"], figure(counts), again)

    return candidates


def beside_vllm(results):
    shape = {"block_size": 64 * KIB, "blocks": 1024, "op": "write"}
    for result in results.find("transfer", run="vllm", **shape):
        found = ratio(row(result, "local"), row(result, "vllm"), "gb_per_s")
        yield Candidate(shape_of(result), result["run"], found)


def submissions(metric, pattern):
    def candidates(results):
        for result in results.find("transfer", run="submit", blocks=RUNS, pattern=pattern):
            for subject in ("local", "local-unmapped", "nixl"):
                found = spread(row(result, subject), metric)
                yield Candidate(f"{subject}, {shape_of(result)}", result["run"], found)

    return candidates


def growth(test, key, low, high, metrics):
    """The same subject with more of something."""

    def candidates(results):
        for ucx_tls in (None, "tcp"):
            for small in results.find(test, ucx_tls=ucx_tls, **{key: low}):
                for large in results.find(test, ucx_tls=ucx_tls, run=small["run"], **{key: high}):
                    for one in large["rows"]:
                        subject = one["subject"]
                        if subject not in ("local", "local-unmapped", "nixl"):
                            continue
                        for metric in metrics:
                            found = ratio(one, row(small, subject), metric)
                            if found:
                                yield Candidate(f"{subject}, {high:,} against {low:,}", large["run"], found)

    return candidates


def peer_memory(results):
    for result in results.find("add-peer", blocks=1_000_000):
        for subject in ("local", "local-unmapped", "nixl"):
            found = spread(row(result, subject), "rss_bytes")
            yield Candidate(f"{subject}, 1,000,000 blocks", result["run"], found)


def idle(results):
    for result in results.find("idle"):
        for one in result["rows"]:
            if one["mode"] not in ("poll-1ms", "sleep-1ms"):
                yield Candidate(f"{one['subject']}, {one['mode']}", result["run"], spread(one, "cpu_share"))


def polled(results):
    """A caller that polls has wake-ups of its own, which cost as much without the library."""
    for result in results.find("idle"):
        for subject in ("local", "nixl"):
            polls, sleeps = (row(result, subject, mode=mode) for mode in ("poll-1ms", "sleep-1ms"))
            yield Candidate(f"{subject}, poll-1ms", result["run"], difference(polls, sleeps, "cpu_share"))


SCATTERED = {"pattern": "scattered"}
GATES = [
    Gate("1", "mapped LOCAL against a non-temporal copy of the same list, 64 KiB and more",
         transfers(ratio, "local", "copy-nt", "gb_per_s", (64 * KIB, 256 * KIB, 2 * MIB), **SCATTERED), at_least=0.90),
    Gate("1", "the same, 4 and 16 KiB",
         transfers(ratio, "local", "copy-nt", "gb_per_s", (4 * KIB, 16 * KIB), **SCATTERED), at_least=0.85),
    Gate("2", "`process_vm` LOCAL against the bare system calls",
         transfers(ratio, "local-unmapped", "process-vm", "gb_per_s", **SCATTERED), at_least=0.95),
    Gate("3", "mapped LOCAL against raw NIXL, 64 KiB",
         transfers(ratio, "local", "nixl-raw", "gb_per_s", (64 * KIB,), **SCATTERED), at_least=3.0),
    Gate("3", "mapped LOCAL against vLLM's NIXL transport, 64 KiB", beside_vllm, at_least=5.0),
    Gate("4", "one block of 4 KiB from submission to completion, mapped LOCAL against raw NIXL",
         transfers(ratio, "local", "nixl-raw", "completion_ns.p50", (4 * KIB,), one=True), at_most=0.5),
    Gate("5", "NIXL against raw NIXL, transfers of 1 MiB and more",
         transfers(ratio, "nixl", "nixl-raw", "gb_per_s", bytes_least=MIB), at_least=0.97),
    Gate("5", "the same over sockets",
         transfers(ratio, "nixl", "nixl-raw", "gb_per_s", bytes_least=MIB, ucx_tls="tcp"), at_least=0.97),
    Gate("5", "one block over NIXL, on top of raw NIXL",
         transfers(difference, "nixl", "nixl-raw", "completion_ns.p50", one=True), at_most=500, form=time),
    Gate("5", "the same over sockets",
         transfers(difference, "nixl", "nixl-raw", "completion_ns.p50", one=True, ucx_tls="tcp"), at_most=500,
         form=time),
    Gate("6", f"submission of {RUNS:,} scattered blocks, median: 5 µs and 40 ns for each run",
         submissions("submit_ns.p50", "scattered"), at_most=5000 + 40 * RUNS, form=time),
    Gate("6", f"submission of {RUNS:,} blocks that are one run, median: the same",
         submissions("submit_ns.p50", "contiguous"), at_most=5000 + 40, form=time),
    Gate("6", f"submission of {RUNS:,} scattered blocks, p99",
         submissions("submit_ns.p99", "scattered"), at_most=100_000, form=time),
    Gate("7", "time to add a peer of 1,000,000 blocks against one of 1,000",
         growth("add-peer", "blocks", 1000, 1_000_000, ("add_ns",)), at_most=1.2),
    Gate("7", "memory that this takes", peer_memory, at_most=64 * KIB, form=lambda value: f"{value / KIB:,.0f} KiB"),
    Gate("8", "poll with 10,000 in flight and nothing done, against one",
         growth("in-flight", "in_flight", 1, 10_000, ("poll_ns", "ns_per_byte")), at_most=2.0),
    Gate("9", "idle, of one core", idle, at_most=0.01, form=share),
    Gate("9", "the same, what a poll every millisecond adds to the caller's own wake-ups", polled, at_most=0.01,
         form=share),
]


def short(results):
    """Options of dt_perf for every transfer that falls short, each once."""
    return list(dict.fromkeys(
        found.again for gate in GATES for found in gate.measured(results) if found.again and not gate.holds(found)
    ))


if __name__ == "__main__":
    for options in short(Results(sys.argv[1])):
        print(*options)
