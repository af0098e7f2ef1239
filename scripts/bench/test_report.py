"""Tests of the report, on figures that are made up: python3 -m unittest discover -s scripts/bench -p test_report.py"""

import json
import pathlib
import re
import tempfile
import unittest
from unittest import mock

import report
from gates import GATES, KIB, MIB, short
from results import Results, ratio, row

MACHINE = {"cpu": "a CPU", "cores": 2, "memory_bytes": 24 << 30, "kernel": "6.1", "thp": "madvise",
           "l3_bytes": 32 * MIB}
ROUNDS = 5

# GB/s at 64 KiB; other sizes are scaled. What the subjects need for one block, in ns.
SPEED = {"local": 15.0, "local-unmapped": 5.9, "nixl": 4.6, "memcpy": 11.0, "copy-nt": 15.5,
         "process-vm": 6.0, "nixl-raw": 4.65, "vllm": 2.2}
BLOCK_NS = {"local": 1500, "local-unmapped": 2600, "nixl": 4000, "nixl-raw": 3700}
SIZE_FACTOR = {4 * KIB: 0.4, 16 * KIB: 0.6, 64 * KIB: 1.0, 256 * KIB: 1.2, 2 * MIB: 1.3}


def wobble(index):
    """Rounds differ, and all subjects of a round in the same way."""
    return 1 + 0.05 * ((index * 7) % ROUNDS - 2)


def transfer(op, block_size, blocks, pattern, subjects, factor=1.0, **more):
    rows = []
    runs = 1 if pattern == "contiguous" else blocks
    for subject in subjects:
        rounds = []
        for index in range(ROUNDS):
            speed = SPEED[subject] * SIZE_FACTOR.get(block_size, 0.4) * factor * wobble(index)
            ns = BLOCK_NS.get(subject, 5000) if blocks == 1 else blocks * block_size / speed
            rounds.append({
                "gb_per_s": speed, "transfers_per_s": 1e9 / ns,
                "submit_ns": {"p50": 100 + 8 * runs, "p99": 200 + 9 * runs, "p999": 300 + 9 * runs},
                "poll_ns": {"p50": 90, "p99": 200, "p999": 500},
                "completion_ns": {"p50": ns, "p99": 1.3 * ns, "p999": 2 * ns},
                "cpu_s_per_gb": {"initiator": 1 / speed, "target": 0.001},
            })
        rows.append({"subject": subject, "rounds": rounds})
    return {"test": "transfer", "op": op, "block_size": block_size, "blocks": blocks, "pattern": pattern,
            "depth": 1, "peers": 1, "pool_bytes": 512 * MIB, "region_bytes": 512 * MIB, "rounds": ROUNDS, "rows": rows, **more}


def simple(test, subjects, figure, **more):
    rows = [{"subject": s, "rounds": [figure] * ROUNDS} for s in subjects]
    return {"test": test, "rows": rows, **more}


def made_up():
    """{name of the run: its results}, for the whole matrix."""
    everything = [s for s in SPEED if s != "vllm"]
    runs = {}
    for op in ("write", "read"):
        for pattern in ("scattered", "contiguous"):
            for block in report.SIZES:
                shape = op, block, 64 * MIB // block, pattern
                runs[f"matrix-{op}-{pattern}-{block}"] = [transfer(*shape, everything)]
                runs[f"matrix-tcp-{op}-{pattern}-{block}"] = [transfer(*shape, ["nixl", "nixl-raw"], 0.5)]
        runs[f"latency-tcp-{op}"] = [transfer(op, 4 * KIB, 1, "scattered", ["nixl", "nixl-raw"])]
        runs[f"latency-{op}"] = [transfer(op, b, 1, "scattered", list(BLOCK_NS)) for b in (4 * KIB, 64 * KIB)]
    for pattern in ("scattered", "contiguous"):
        runs[f"submit-{pattern}"] = [transfer("write", 4 * KIB, 8192, pattern, ["local", "nixl"])]
    runs["add-peer"] = [
        simple("add-peer", ["local", "nixl"], {"add_ns": 20_000, "rss_bytes": 8 * KIB}, blocks=n)
        for n in (1000, 1_000_000)
    ]
    runs["in-flight-tcp"] = [
        simple("in-flight", ["nixl"], {"poll_ns": 500 + n // 100}, in_flight=n) for n in (1, 100, 10_000)
    ]
    runs["idle"] = [{"test": "idle", "rows": [
        {"subject": s, "mode": m, "rounds": [{"cpu_share": 0.0004}] * 2}
        for s in ("local", "nixl") for m in ("none", "wait", "poll-1ms", "sleep-1ms")
    ]}]
    lines = ["local", "nixl"]
    for depth in (1, 10, 100, 1000, 10_000, 100_000):
        runs.setdefault("scaling-depth", []).append(
            transfer("write", 4 * KIB, 1, "scattered", lines) | {"depth": depth})
    for peers in (1, 10, 100, 1000):
        runs.setdefault("scaling-peers", []).append(
            transfer("write", 4 * KIB, 1, "scattered", lines) | {"peers": peers})
    for blocks in (1, 10, 100, 1000, 10_000, 100_000, 1_000_000):
        runs.setdefault("scaling-blocks", []).append(transfer("write", 512, blocks, "scattered", lines))
    for pool in (MIB, 64 * MIB, 1024 * MIB, 16 * 1024 * MIB):
        runs.setdefault("scaling-region", []).append(
            transfer("write", 4 * KIB, 16, "scattered", lines) | {"region_bytes": pool})
    runs["vllm"] = [transfer("write", 64 * KIB, 1024, "scattered", ["local", "nixl-raw", "vllm"])]
    return runs


def document(results, run, machine=None):
    return {"dt_perf": 1, "version": "0.1.0", "machine": machine or MACHINE, "nixl": "1.5.1",
            "ucx_tls": "tcp" if "tcp" in run else None, "started": "2026-01-01T00:00:00Z",
            "missing": [{"subject": "copy-nt", "why": "made up"}], "results": results}


class MadeUp(unittest.TestCase):
    """A folder with the figures of a run."""

    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        self.runs = made_up()

    def results(self):
        for run, results in self.runs.items():
            (self.folder / f"{run}.json").write_text(json.dumps(document(results, run)))
        (self.folder / "run.json").write_text(json.dumps(
            {"commit": "abc", "started": "2026-01-01", "load": "0.1", "busy": False}))
        return Results(self.folder)


class ReportTest(MadeUp):
    def judged(self, what):
        gate = next(gate for gate in GATES if what in gate.what)
        return gate.judge(self.results())

    def rounds(self, run, subject):
        return next(one for one in self.runs[run][0]["rows"] if one["subject"] == subject)["rounds"]

    def test_all_gates_are_judged(self):
        results = self.results()
        for gate in GATES:
            self.assertIsNotNone(gate.judge(results), gate.what)
        numbers = {gate.number for gate in GATES}
        self.assertEqual(numbers, {str(n) for n in range(1, 10)})

    def test_a_ratio_is_of_the_same_round(self):
        """Rounds differ by 20 %, and the ratio of two subjects in one of them by nothing."""
        result = self.results().find("transfer", run="matrix-write-scattered-65536")[0]
        found = ratio(row(result, "local"), row(result, "nixl-raw"), "gb_per_s")
        self.assertEqual(len(found.values), ROUNDS)
        self.assertAlmostEqual(found.least, 15.0 / 4.65)
        self.assertAlmostEqual(found.most, 15.0 / 4.65)

    def test_the_worst_shape_decides(self):
        self.assertTrue(self.judged("64 KiB and more")[3])
        for figure in self.rounds("matrix-read-scattered-262144", "local"):
            figure["gb_per_s"] *= 0.9
        shape, run, reached, holds = self.judged("64 KiB and more")
        self.assertFalse(holds)
        self.assertIn("read, 256 x 256 KiB", shape)
        self.assertEqual(run, "matrix-read-scattered-262144")
        self.assertAlmostEqual(reached.median, 15.0 * 0.9 / 15.5)

    def test_one_bad_round_does_not_decide(self):
        rounds = self.rounds("matrix-write-scattered-65536", "local")
        for figure in rounds:
            figure["gb_per_s"] *= 0.97
        rounds[0]["gb_per_s"] = 1.0
        _, run, reached, holds = self.judged("64 KiB and more")
        self.assertEqual((run, holds), ("matrix-write-scattered-65536", True))
        self.assertLess(reached.least, 0.1)
        rounds = self.rounds("latency-write", "local")
        for figure in rounds:
            figure["completion_ns"]["p50"] = 1600
        rounds[0]["completion_ns"]["p50"] = 9000
        _, run, reached, holds = self.judged("one block of 4 KiB")
        self.assertEqual((run, holds), ("latency-write", True))
        self.assertGreater(reached.most, 2)

    def test_what_fell_short_is_measured_once_more(self):
        self.assertEqual(short(self.results()), [])
        for block in (65536, 262144):
            for figure in self.rounds(f"matrix-read-scattered-{block}", "local-unmapped"):
                figure["gb_per_s"] *= 0.9
        for block in (65536, 262144):
            options = {"--op=read", "--pattern=scattered", f"--block-size={block}", f"--blocks={64 * MIB // block}",
                       "--subjects=local-unmapped,process-vm"}
            self.assertEqual([set(one) for one in short(self.results())].count(options), 1)
        self.assertEqual(len(short(self.results())), 2)
        pair = ["local-unmapped", "process-vm"]
        # It counts for its shape alone, and for its subjects alone.
        self.runs["again-1"] = [transfer("read", 65536, 1024, "scattered", pair)]
        shape, run, _, holds = self.judged("bare system calls")
        self.assertEqual((shape, run, holds), ("read, 256 x 256 KiB, scattered", "matrix-read-scattered-262144", False))
        self.assertTrue(self.judged("NIXL against raw")[3])
        self.runs["again-2"] = [transfer("read", 262144, 256, "scattered", pair)]
        self.assertTrue(self.judged("bare system calls")[3])
        self.assertEqual(short(self.results()), [])
        # Also when it came out worse.
        for figure in self.rounds("again-2", "local-unmapped"):
            figure["gb_per_s"] *= 0.5
        _, run, reached, holds = self.judged("bare system calls")
        self.assertEqual((run, holds), ("again-2", False))
        self.assertLess(reached.median, 0.5)
        said = report.gates(self.results())
        self.assertIn("(2 of them) was measured once more", said)
        self.assertIn("What reached its gate was not measured again", said)

    def test_sockets_are_measured_once_more_as_such(self):
        for figure in self.rounds("matrix-tcp-write-contiguous-4096", "nixl"):
            figure["gb_per_s"] *= 0.9
        (options,) = short(self.results())
        self.assertIn("--ucx-tls=tcp", options)
        self.runs["again-1"] = [transfer("write", 4096, 16384, "contiguous", ["nixl", "nixl-raw"])]
        self.assertFalse(self.judged("the same over sockets")[3], "that was without them")

    def test_a_latency_may_be_too_long(self):
        self.assertTrue(self.judged("one block of 4 KiB")[3])
        for figure in self.rounds("latency-write", "local"):
            figure["completion_ns"]["p50"] = 3000
        self.assertFalse(self.judged("one block of 4 KiB")[3])

    def test_a_limit_is_no_ratio(self):
        _, _, reached, holds = self.judged("one block over NIXL")
        self.assertEqual((reached.median, holds), (300, True))
        for figure in self.rounds("submit-scattered", "nixl"):
            figure["submit_ns"]["p99"] = 100_001
        shape, _, _, holds = self.judged("8,192 scattered blocks, p99")
        self.assertFalse(holds)
        self.assertIn("nixl", shape)

    def test_growth_is_of_one_subject(self):
        self.assertTrue(self.judged("poll with 10,000")[3])
        for figure in self.runs["in-flight-tcp"][2]["rows"][0]["rounds"]:
            figure["poll_ns"] = 1100
        _, _, reached, holds = self.judged("poll with 10,000")
        self.assertFalse(holds)
        self.assertAlmostEqual(reached.median, 2.2)

    def test_who_polls_is_another_one(self):
        for one in self.runs["idle"][0]["rows"]:
            if one["mode"] == "poll-1ms":
                one["rounds"][0]["cpu_share"] = one["rounds"][1]["cpu_share"] = 0.02
        self.assertTrue(self.judged("idle, of one core")[3])
        self.assertFalse(self.judged("poll every millisecond")[3])
        # What the caller's own wake-ups cost is not the library's.
        for one in self.runs["idle"][0]["rows"]:
            if one["mode"] == "sleep-1ms":
                one["rounds"][0]["cpu_share"] = one["rounds"][1]["cpu_share"] = 0.015
        _, _, reached, holds = self.judged("poll every millisecond")
        self.assertAlmostEqual(reached.median, 0.005)
        self.assertTrue(holds)
        self.assertTrue(self.judged("idle, of one core")[3])

    def test_vllm_and_the_curves_are_not_part_of_the_matrix(self):
        for figure in self.rounds("vllm", "local"):
            figure["gb_per_s"] = 0.1
        self.assertTrue(self.judged("against raw NIXL, 64 KiB")[3])
        self.assertFalse(self.judged("against vLLM")[3])

    def test_what_was_not_measured_is_said(self):
        del self.runs["vllm"]
        results = self.results()
        self.assertIsNone(next(g for g in GATES if "vLLM" in g.what).judge(results))
        line = next(line for line in report.gates(results).splitlines() if "against vLLM" in line)
        self.assertIn("not measured", line)
        self.assertNotIn("holds", line)

    def test_what_one_run_lacks_is_said_with_its_name(self):
        self.results()
        for run in ("idle", "latency-read"):
            lacks = document(self.runs[run], run)
            lacks["missing"] = [{"subject": "local", "why": "there"}, {"subject": "no-such", "why": "anywhere"}]
            (self.folder / f"{run}.json").write_text(json.dumps(lacks))
        text = report.machine(Results(self.folder))
        self.assertIn("Not measured in idle, latency-read: LOCAL, mapped: there\n", text)
        self.assertIn("Not measured: no-such: anywhere\n", text)

    def test_what_does_not_hold_is_said(self):
        self.assertNotIn("does not hold", report.gates(self.results()))
        for figure in self.rounds("matrix-write-scattered-65536", "nixl"):
            figure["gb_per_s"] *= 0.5
        with mock.patch.object(report, "remarks", return_value={}):
            text = report.gates(self.results())
        self.assertEqual(text.count("**does not hold**"), 1)
        self.assertIn("Gate 5 does not hold in this run, and there is no remark", text)
        with mock.patch.object(report, "remarks", return_value={"5": "Because."}):
            text = report.gates(self.results())
        self.assertIn("- Gate 5: Because.", text)
        self.assertNotIn("no remark", text)

    def test_remarks_are_those_of_their_gate(self):
        with mock.patch("pathlib.Path.read_text", return_value="Preface.\n\n## Gate 3\n\nOne\ntwo.\n\n## Gate 5\n"):
            self.assertEqual(report.remarks(), {"3": "One two.", "5": ""})

    def test_unlike_machines_are_not_mixed(self):
        self.results()
        other = document(self.runs["idle"], "idle", {**MACHINE, "cores": 3})
        (self.folder / "idle.json").write_text(json.dumps(other))
        with self.assertRaisesRegex(ValueError, "idle"):
            Results(self.folder)

    def test_rounds_must_fit(self):
        self.rounds("matrix-write-scattered-65536", "local").pop()
        with self.assertRaisesRegex(ValueError, "4 rounds"):
            report.gates(self.results())

    def test_every_part_is_written(self):
        text = report.report(self.results(), True)
        for part in ("What must be reached", "Machine and run", "Throughput", "Write, scattered", "Read, contiguous",
                     "Latency", "Submission", "Adding a peer", "Poll while nothing", "Idle", "Scaling",
                     "Beside vLLM", "UCX_TLS=tcp", "non-temporal copy in one process: made up"):
            self.assertIn(part, text)
        for line in re.findall(r"(?:^\|.*\n)+", text, flags=re.M):
            widths = {row.count("|") for row in line.splitlines()}
            self.assertEqual(len(widths), 1, line)

    def test_what_grows_is_said(self):
        for figure in self.runs["scaling-depth"][-1]["rows"][0]["rounds"]:
            figure["transfers_per_s"] /= 3
        text = report.curves(self.results())
        grown = [line for line in text.splitlines() if line.endswith("| 3.00 |")]
        self.assertEqual(len(grown), 1)
        self.assertIn("LOCAL, mapped | 1.50 µs | 1.50 µs", grown[0])

    def test_a_busy_machine_is_said(self):
        results = self.results()
        self.assertNotIn("not idle", report.report(results, False))
        results.about["busy"] = True
        self.assertIn("not idle", report.report(results, False))


if __name__ == "__main__":
    unittest.main()
