"""Prints the coverage of each file of src/, and fails when one that must be covered is not.

report.py LCOV PURE: what llvm-cov exports, and the list of files whose every line must be run.
"""

import fnmatch
import os
import sys


# What is compiled for tests and fuzzers alone.
NO_PART_OF_THE_LIBRARY = ("/tests", "/fuzz", "src/backend/sim.rs")


def read(path):
    """{file: ({line: count}, {branch: taken})}, without the tests."""
    files = {}
    with open(path, encoding="utf-8") as records:
        for record in records:
            key, _, value = record.rstrip("\n").partition(":")
            if key == "SF":
                name = os.path.relpath(value)
                lines, branches = files.setdefault(name, ({}, {}))
            elif key == "DA":
                line, count = map(int, value.split(",")[:2])
                lines[line] = max(count, lines.get(line, 0))
            elif key == "BRDA":
                line, block, branch, taken = value.split(",")
                where = int(line), block, branch
                branches[where] = max(0 if taken == "-" else int(taken), branches.get(where, 0))
    return {
        name: found
        for name, found in files.items()
        if name.startswith("src/") and not any(part in name for part in NO_PART_OF_THE_LIBRARY)
    }


def without_tests(name, lines, branches):
    """What stands before the test module of the file."""
    with open(name, encoding="utf-8") as text:
        source = text.read().splitlines()
    end = next((i for i, line in enumerate(source, 1) if line == "mod tests {"), None)
    if end is None:
        return lines, branches
    return (
        {line: count for line, count in lines.items() if line < end},
        {where: taken for where, taken in branches.items() if where[0] < end},
    )


def ranges(lines):
    """[1, 2, 3, 7] as "1-3 7"."""
    spans = []
    for line in sorted(lines):
        if spans and spans[-1][1] == line - 1:
            spans[-1][1] = line
        else:
            spans.append([line, line])
    return " ".join(f"{a}-{b}" if a != b else f"{a}" for a, b in spans)


def share(hit, total):
    return f"{hit:5}/{total:<5} {100 * hit / total if total else 100:6.2f} %"


def main(lcov, pure):
    with open(pure, encoding="utf-8") as names:
        patterns = [name.strip() for name in names if name.strip() and not name.startswith("#")]
    bad = []
    sums = [0] * 4
    print(f"{'':38} {'lines':>20}   {'branches':>20}   lines that were not run")
    for name, found in sorted(read(lcov).items()):
        lines, branches = without_tests(name, *found)
        if not lines:
            continue
        missed = [line for line, count in lines.items() if count == 0]
        numbers = (
            len(lines) - len(missed),
            len(lines),
            sum(taken > 0 for taken in branches.values()),
            len(branches),
        )
        sums = [a + b for a, b in zip(sums, numbers)]
        print(
            f"{name:38} {share(*numbers[:2])}   {share(*numbers[2:])}   {ranges(missed)}".rstrip()
        )
        if missed and any(fnmatch.fnmatch(name, pattern) for pattern in patterns):
            bad.append(name)
    print(f"{'all':38} {share(*sums[:2])}   {share(*sums[2:])}")
    if not sums[1]:
        sys.exit("nothing was measured")
    if bad:
        sys.exit(f"these must be run to their last line, and are not: {', '.join(bad)}")


main(*sys.argv[1:])
