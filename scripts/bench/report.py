"""Writes performance.md and its charts from what scripts/bench.sh has measured.

report.py FOLDER OUTPUT [--charts]: the folder with dt_perf's JSON, and where to write.
"""

import pathlib
import re
import sys

from curves import CURVES, growth, points
from gates import AGAIN, GATES, KIB, MIB
from results import Results, ratio, row, spread
from text import digits, share, size, table, time, with_range

SIZES = (4 * KIB, 16 * KIB, 64 * KIB, 256 * KIB, 2 * MIB)
NAMES = {
    "local": "LOCAL, mapped",
    "local-unmapped": "LOCAL, `process_vm`",
    "nixl": "NIXL backend",
    "nixl-raw": "raw NIXL",
    "memcpy": "`memcpy` in one process",
    "copy-nt": "non-temporal copy in one process",
    "process-vm": "bare `process_vm` calls",
    "vllm": "vLLM's NIXL transport",
}
COMPARED = (
    ("local", "copy-nt"),
    ("local", "nixl-raw"),
    ("local-unmapped", "process-vm"),
    ("local-unmapped", "nixl-raw"),
    ("nixl", "nixl-raw"),
)


def name(subject, ucx_tls=None):
    # LOCAL does not ask for it.
    known = f", UCX_TLS={ucx_tls}" if ucx_tls and subject.startswith("nixl") else ""
    return NAMES.get(subject, subject) + known


def remarks():
    """{gate: sentence} from remarks.md."""
    text = pathlib.Path(__file__).with_name("remarks.md").read_text(encoding="utf-8")
    parts = re.split(r"^## Gate (\d+)\n", text, flags=re.M)[1:]
    return {number: " ".join(said.split()) for number, said in zip(parts[::2], parts[1::2])}


def gates(results):
    rows, notes = [], []
    said = remarks()
    failed = set()
    for gate in GATES:
        verdict = gate.judge(results)
        if verdict is None:
            rows.append([gate.number, gate.what, "not measured", "", gate.limit, "**?**", "", ""])
            continue
        shape, run, reached, holds = verdict
        if not holds:
            failed.add(gate.number)
        rows.append([
            gate.number, gate.what, gate.form(reached.median),
            f"{gate.form(reached.least)} to {gate.form(reached.most)}",
            gate.limit, "holds" if holds else "**does not hold**", shape, run,
        ])
    rows.append(["10", "no allocation per transfer of up to 64 runs, LOCAL", "", "", "none", "a test",
                 "", "`c_tests/integration_allocations.c`"])
    for number in sorted(said, key=int):
        if said[number] and number in failed:
            notes.append(f"- Gate {number}: {said[number]}\n")
    for number in sorted(failed - {n for n in said if said[n]}, key=int):
        notes.append(f"- Gate {number} does not hold in this run, and there is no remark on it yet.\n")
    header = ["Gate", "What", "Reached", "Spread", "Limit", "", "Worst shape", "Run"]
    text = table(header, rows, words=(1, 5, 6, 7))
    again = [result for result in results.results if result["run"].startswith(AGAIN)]
    if again:
        rounds = len(again[0]["rows"][0]["rounds"])
        text += (
            f"\nThe worst of many shapes is often one that had bad luck. So each transfer that fell short "
            f"({len(again)} of them) was measured once more, its two subjects alone, in {rounds} rounds; that counts "
            f"here, whatever came of it (runs `{AGAIN}-N`), and the tables below have the first figures. What reached "
            f"its gate was not measured again, so good luck counts.\n"
        )
    return text + ("\n" + "".join(notes) if notes else "")


def machine(results):
    about, found = results.about, results.machine
    rounds = sorted({len(r["rounds"]) for result in results.results for r in result["rows"]})
    rows = [
        ["CPU", f"{found['cpu']}, {found['cores']} cores, {size(found['l3_bytes'])} of L3"],
        ["Memory", f"{found['memory_bytes'] / (1 << 30):.1f} GiB, transparent huge pages: {found['thp']}"],
        ["Kernel", found["kernel"]],
        ["libdatatransport", f"{results.version}, commit {about.get('commit', 'unknown')}"],
        ["NIXL", results.nixl or "not there"],
        ["vLLM", about.get("vllm") or "left out (--with-vllm)"],
        ["Compilers", about.get("compilers", "unknown")],
        ["Date", about.get("started", "unknown")],
        ["Rounds", " to ".join(str(n) for n in (rounds if len(rounds) == 1 else (rounds[0], rounds[-1])))],
        ["Load when it began", about.get("load", "unknown")],
    ]
    text = table(["", ""], rows, words=(0, 1))
    if about.get("busy"):
        text += "\n**The machine was not idle when this began: the ratios are rough, and the rest means little.**\n"
    measured = {one["subject"] for result in results.results for one in result["rows"]}
    for (subject, why), runs in sorted(results.missing.items()):
        where = f" in {', '.join(runs)}" if subject in measured else ""
        text += f"\nNot measured{where}: {name(subject)}: {why}\n"
    return text


def throughput(results, op, pattern):
    """Rows are subjects, columns are sizes: GB/s, and how much of the peers' that is."""
    cells, compared = {}, {}
    for ucx_tls in (None, "tcp"):
        for result in results.find("transfer", ucx_tls=ucx_tls, run="matrix", op=op, pattern=pattern):
            block = result["block_size"]
            for one in result["rows"]:
                cells.setdefault((one["subject"], ucx_tls), {})[block] = spread(one, "gb_per_s")
            for over, under in COMPARED:
                found = ratio(row(result, over), row(result, under), "gb_per_s")
                if found:
                    compared.setdefault((over, under, ucx_tls), {})[block] = found
    if not cells:
        return ""
    sizes = [block for block in SIZES if any(block in line for line in cells.values())]
    header = ["GB/s", *(size(block) for block in sizes)]
    order = list(NAMES)
    lines = sorted(cells, key=lambda line: (line[1] or "", order.index(line[0])))
    rows = [[name(*line), *(with_range(cells[line].get(b)) for b in sizes)] for line in lines]
    text = f"### {op.capitalize()}, {pattern}\n\n" + table(header, rows)
    header[0] = "Ratio, round by round"
    rows = [
        [f"{name(over)} : {name(under, ucx_tls)}", *(with_range(line.get(b)) for b in sizes)]
        for (over, under, ucx_tls), line in compared.items()
        # With sockets only NIXL has other figures.
        if ucx_tls is None or over == "nixl"
    ]
    return text + ("\n" + table(header, rows) if rows else "") + "\n"


def effort(results):
    """CPU time, in the shape of most interest."""
    rows = []
    for ucx_tls in (None, "tcp"):
        shape = {"run": "matrix", "op": "write", "pattern": "scattered", "block_size": 64 * KIB}
        for result in results.find("transfer", ucx_tls=ucx_tls, **shape):
            for one in result["rows"]:
                sides = [spread(one, f"cpu_s_per_gb.{side}") for side in ("initiator", "target")]
                rows.append([
                    name(one["subject"], ucx_tls),
                    *(with_range(side, lambda v: digits(1000 * v)) for side in sides),
                ])
    return table(["CPU, ms per GB", "initiator", "target"], rows) if rows else ""


def middle(found):
    return time(found.median) if found else "–"


def latency(results):
    rows = []
    for ucx_tls in (None, "tcp"):
        for result in results.find("transfer", ucx_tls=ucx_tls, run="latency", blocks=1):
            for one in result["rows"]:
                if spread(one, "completion_ns.p50") is None:
                    continue
                rows.append([
                    f"{result['op']}, {size(result['block_size'])}", name(one["subject"], ucx_tls),
                    with_range(spread(one, "completion_ns.p50"), time),
                    *(middle(spread(one, metric)) for metric in (
                        "completion_ns.p99", "completion_ns.p999", "submit_ns.p50", "poll_ns.p50")),
                ])
    header = ["One block", "", "p50", "p99", "p99.9", "submission, p50", "poll, p50"]
    return table(header, rows, words=(0, 1)) if rows else ""


def submission(results):
    rows = []
    for result in results.find("transfer", run="submit"):
        for one in result["rows"]:
            found = [spread(one, f"submit_ns.{p}") for p in ("p50", "p99")]
            if found[0]:
                rows.append([
                    f"{name(one['subject'])}, {result['blocks']:,} blocks, {result['pattern']}",
                    *(with_range(f, time) for f in found),
                    with_range(found[0].map(lambda v: v / result["blocks"]), lambda v: f"{v:.1f} ns"),
                ])
    return table(["One call", "p50", "p99", "per block"], rows) if rows else ""


def plain(results, test, label, header, columns):
    """One line for each row of a test: columns are (metric, form)."""
    rows = []
    for ucx_tls in (None, "tcp"):
        for result in results.find(test, ucx_tls=ucx_tls):
            for one in result["rows"]:
                rows.append([
                    f"{name(one['subject'], ucx_tls)}{label(result, one)}",
                    *(with_range(spread(one, metric), form) for metric, form in columns),
                ])
    return table(header, rows) if rows else ""


def curves(results):
    text = ""
    for run, key, title, per in CURVES:
        lines = points(results, run, key, per)
        if not lines:
            continue
        at = sorted({x for costs in lines.values() for x, _ in costs})
        form = size if key == "region_bytes" else lambda value: f"{value:,}"
        rows = [
            [name(*line), *(middle(dict(costs).get(x)) for x in at), digits(growth(costs))]
            for line, costs in lines.items()
        ]
        text += f"\n{title}; time per {per}:\n\n" + table(["", *map(form, at), "last : first"], rows)
    return text


def report(results, charts):
    def section(title, body):
        return f"\n## {title}\n\n{body.strip(chr(10))}\n" if body.strip() else ""

    shapes = [throughput(results, op, p) for op in ("write", "read") for p in ("scattered", "contiguous")]
    commit = results.about.get("commit", "an unknown commit")
    return "".join((
        "# Performance\n\n"
        f"Written by `scripts/bench.sh` on {results.about.get('started', 'an unknown day')}, at {commit}; not by hand. "
        "GB is 10⁹ bytes.\nOther machines give other figures: run it on yours. What holds everywhere is the ratio "
        "between subjects that took turns in one run.\nFigures are medians over rounds, with the least and the "
        "most of them; a ratio is taken in every round, and its median is that of the ratios.\n",
        section("What must be reached", gates(results)),
        section("Machine and run", machine(results)),
        section("Throughput", (
            "Transfers of 64 MiB, one at a time, out of a pool larger than the cache.\n\n"
            + ("![GB/s over the block size](performance.svg)\n\n" if charts else "")
            + "".join(shapes) + effort(results)) if any(shapes) else ""),
        section("Latency", latency(results)),
        section("Submission", submission(results)),
        section("Adding a peer", plain(
            results, "add-peer", lambda result, _: f", {result['blocks']:,} blocks",
            ["", "time", "memory"],
            [("add_ns", time), ("rss_bytes", lambda v: f"{v / KIB:,.0f} KiB")])),
        section("Poll while nothing is done", plain(
            results, "in-flight", lambda result, _: f", {result['in_flight']:,} in flight",
            ["", "one poll", "per byte moved"],
            [("poll_ns", time), ("ns_per_byte", lambda v: f"{v:.3f} ns")])),
        section("Idle", plain(
            results, "idle", lambda _, one: f", {one['mode']}", ["", "of one core"], [("cpu_share", share)])),
        section("Scaling", (
            ("![Time over depth, peers, blocks and region](performance_scaling.svg)\n" if charts else "")
            + "\nA curve that is linear in the work itself is level here.\n" + curves(results)) if curves(results) else ""),
        section("Beside vLLM", beside_vllm(results)),
        section("How to repeat it", "    scripts/bench.sh              # all of this, in less than 20 minutes\n"
                "    scripts/bench.sh --with-vllm  # and vLLM's transport, which is fetched for it\n"
                "    scripts/bench.sh --quick      # in 2 minutes, rough, into build/bench\n\n"
                "`dt_perf --help` says what each figure means, and how to measure your own shapes."),
    ))


def beside_vllm(results):
    """vLLM's transport and dt_perf take turns: a round of one, then a round of the other."""
    rows = []
    for result in results.find("transfer", run="vllm"):
        theirs = row(result, "vllm")
        for one in result["rows"]:
            rows.append([
                f"{result['op']}, {result['blocks']:,} x {size(result['block_size'])}", name(one["subject"]),
                with_range(spread(one, "gb_per_s")), with_range(spread(one, "completion_ns.p50"), time),
                with_range(ratio(one, theirs, "gb_per_s")) if one is not theirs else "",
            ])
    if not rows:
        return ""
    header = ["", "", "GB/s", "completion, p50", "throughput against vLLM's"]
    return table(header, rows, words=(0, 1))


def main(folder, output, *options):
    results = Results(folder)
    output = pathlib.Path(output)
    output.mkdir(parents=True, exist_ok=True)
    charts = "--charts" in options
    if charts:
        # Only here, so that the tables can be written where matplotlib is not.
        import charts as drawing
        drawing.draw(results, output)
    text = report(results, charts)
    (output / "performance.md").write_text(text, encoding="utf-8")
    # What one wants to know at once.
    for gate in GATES:
        verdict = gate.judge(results)
        if verdict is None:
            print(f"gate {gate.number}  not measured    {gate.what}")
            continue
        shape, _, reached, holds = verdict
        print(f"gate {gate.number}  {'holds         ' if holds else 'does not hold '}  {gate.what}: "
              f"{gate.form(reached.median)}, {gate.limit} ({shape})")


if __name__ == "__main__":
    main(*sys.argv[1:])
