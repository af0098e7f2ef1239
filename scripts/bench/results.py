"""What dt_perf has written, and what can be compared in it.

Subjects are compared round by round: the rounds of one run take turns, so what disturbs one disturbs the others, too.
"""

import json
import pathlib
import statistics


class Spread:
    """The figures of all rounds."""

    def __init__(self, values):
        self.values = list(values)
        self.median = statistics.median(self.values)
        self.least = min(self.values)
        self.most = max(self.values)

    def map(self, change):
        return Spread(change(value) for value in self.values)


class Results:
    """All results of a folder of JSON files, and what is said of the run in its run.json."""

    def __init__(self, folder):
        self.about = {}
        self.results = []
        self.missing = {}  # {(subject, why): names of runs}
        self.machine = None
        self.version = None
        self.nixl = None
        for path in sorted(pathlib.Path(folder).glob("*.json")):
            document = json.loads(path.read_text(encoding="utf-8"))
            if path.name == "run.json":
                self.about = document
            elif document.get("dt_perf") == 1:
                self._take(path.stem, document)
        if not self.results:
            raise ValueError(f"there is no result of dt_perf in {folder}")

    def _take(self, run, document):
        if self.machine is None:
            self.machine = document["machine"]
        elif self.machine != document["machine"]:
            raise ValueError(f"{run}.json is of another machine, or of other settings of it")
        self.version = document["version"]
        self.nixl = self.nixl or document.get("nixl")
        for missing in document.get("missing", []):
            self.missing.setdefault((missing["subject"], missing["why"]), []).append(run)
        for result in document["results"]:
            self.results.append({**result, "run": run, "ucx_tls": document.get("ucx_tls")})

    def find(self, test, ucx_tls=None, **shape):
        """The results of that test and shape; "run" is how the name of the run begins."""
        run = shape.pop("run", "")
        return [
            result
            for result in self.results
            if result["test"] == test
            and result["ucx_tls"] == ucx_tls
            and result["run"].startswith(run)
            and all(result.get(key) == value for key, value in shape.items())
        ]


def row(result, subject, **more):
    """The row of that subject, or None."""
    for candidate in result["rows"]:
        if candidate["subject"] == subject and all(candidate.get(k) == v for k, v in more.items()):
            return candidate
    return None


def figures(found, metric):
    """The figure of each round, "completion_ns.p50" being a step deeper; None where there is none."""
    if found is None:
        return None
    values = []
    for figure in found["rounds"]:
        for key in metric.split("."):
            figure = figure.get(key) if figure is not None else None
        if figure is None:
            return None
        values.append(figure)
    return values or None


def spread(found, metric):
    values = figures(found, metric)
    return Spread(values) if values else None


def compare(how, over, under, metric):
    """Ratio or difference of two rows, round by round; None where one of them was not measured."""
    over, under = figures(over, metric), figures(under, metric)
    if over is None or under is None:
        return None
    if len(over) != len(under):
        raise ValueError(f"{len(over)} rounds cannot be compared with {len(under)}")
    return Spread(how(a, b) for a, b in zip(over, under))


def ratio(over, under, metric):
    return compare(lambda a, b: a / b, over, under, metric)


def difference(over, under, metric):
    return compare(lambda a, b: a - b, over, under, metric)
