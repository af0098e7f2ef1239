"""What the library must reach, and whether this run has reached it.

Every gate looks at the worst shape that it speaks of. The figure is the median of what the rounds gave.
"""

from results import difference, ratio, row, spread
from text import digits, share, size, time

KIB, MIB = 1 << 10, 1 << 20
RUNS = 8192


def exact(value):
    """A ratio beside a limit of two digits needs one more, so that what is short of it does not look like it."""
    return f"{value:.3f}" if abs(value) < 10 else digits(value)


class Gate:
    """One line of the table: at_least or at_most is the limit of what candidates() yields.

    candidates(results) yields (shape, run, Spread or None) for all that the gate speaks of.
    """

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

    def judge(self, results):
        """(shape, run, Spread, holds) of the worst shape, or None if nothing was measured."""
        measured = [found for found in self.candidates(results) if found[2] is not None]
        if not measured:
            return None
        median = lambda found: found[2].median
        if self.at_least is not None:
            worst = min(measured, key=median)
            return *worst, worst[2].median >= self.at_least
        worst = max(measured, key=median)
        return *worst, worst[2].median <= self.at_most


def shape_of(result):
    blocks = f"{result['blocks']:,} x " if result["blocks"] > 1 else ""
    return f"{result['op']}, {blocks}{size(result['block_size'])}, {result['pattern']}"


def transfers(compare, over, under, metric, sizes=None, bytes_least=0, one=False, **shape):
    """Two subjects on the shapes of the matrix. What was run beside vLLM, or for a curve, is not part of it."""

    def candidates(results):
        for result in results.find("transfer", **shape):
            single = result["blocks"] == 1
            if (
                result["run"].startswith(("scaling", "vllm"))
                or single != one
                or (sizes and result["block_size"] not in sizes)
                or result["blocks"] * result["block_size"] < bytes_least
            ):
                continue
            found = compare(row(result, over), row(result, under), metric)
            yield shape_of(result), result["run"], found

    return candidates


def beside_vllm(results):
    shape = {"block_size": 64 * KIB, "blocks": 1024, "op": "write"}
    for result in results.find("transfer", run="vllm", **shape):
        found = ratio(row(result, "local"), row(result, "vllm"), "gb_per_s")
        yield shape_of(result), result["run"], found


def submissions(metric, pattern):
    def candidates(results):
        for result in results.find("transfer", run="submit", blocks=RUNS, pattern=pattern):
            for subject in ("local", "local-unmapped", "nixl"):
                found = spread(row(result, subject), metric)
                yield f"{subject}, {shape_of(result)}", result["run"], found

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
                                yield f"{subject}, {high:,} against {low:,}", large["run"], found

    return candidates


def peer_memory(results):
    for result in results.find("add-peer", blocks=1_000_000):
        for subject in ("local", "local-unmapped", "nixl"):
            found = spread(row(result, subject), "rss_bytes")
            yield f"{subject}, 1,000,000 blocks", result["run"], found


def idle(results):
    for result in results.find("idle"):
        for one in result["rows"]:
            if one["mode"] not in ("poll-1ms", "sleep-1ms"):
                yield f"{one['subject']}, {one['mode']}", result["run"], spread(one, "cpu_share")


def polled(results):
    """A caller that polls has wake-ups of its own, which cost as much without the library."""
    for result in results.find("idle"):
        for subject in ("local", "nixl"):
            polls, sleeps = (row(result, subject, mode=mode) for mode in ("poll-1ms", "sleep-1ms"))
            yield f"{subject}, poll-1ms", result["run"], difference(polls, sleeps, "cpu_share")


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
