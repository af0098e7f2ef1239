"""The charts of performance.md. The same figures give the same files."""

import math
import os
import pathlib

# Before matplotlib is imported: it wants a folder to write to, and looks for fonts of the system.
os.environ.setdefault("MPLCONFIGDIR", str(pathlib.Path(__file__).parents[2] / "build/matplotlib"))

import matplotlib

matplotlib.use("svg")
import matplotlib.pyplot as plt
from matplotlib.ticker import FuncFormatter, NullFormatter, NullLocator

from curves import CURVES, points
from results import spread
from text import size

# Of the Okabe-Ito palette, which colour-blind people can tell apart: (label, colour, dashes, width).
STYLES = {
    "local": ("LOCAL, mapped", "#0072b2", "-", 2.6),
    "local-unmapped": ("LOCAL, process_vm", "#009e73", "-", 2.2),
    "nixl": ("NIXL backend", "#d55e00", "-", 2.2),
    "copy-nt": ("non-temporal copy, one process", "#0072b2", "--", 1.3),
    "memcpy": ("memcpy, one process", "#777777", "--", 1.3),
    "process-vm": ("bare process_vm calls", "#009e73", "--", 1.3),
    "nixl-raw": ("raw NIXL", "#d55e00", "--", 1.3),
}

SETTINGS = {
    "svg.hashsalt": "libdatatransport",
    "svg.fonttype": "path",
    "font.family": "DejaVu Sans",
    "font.size": 10,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.color": "#dddddd",
    "grid.linewidth": 0.6,
    # A card of its own, so that it can be read wherever it is shown.
    "figure.facecolor": "white",
    "savefig.facecolor": "white",
}


def line(axes, subject, found, ucx_tls=None):
    """found: [(x, Spread)]; the band is from the least to the most of all rounds."""
    label, colour, dashes, width = STYLES[subject]
    if ucx_tls:
        label, dashes = f"{label}, {ucx_tls}", ":"
    x = [at for at, _ in found]
    axes.plot(x, [s.median for _, s in found], dashes, color=colour, linewidth=width, label=label,
              marker="o", markersize=3.5)
    axes.fill_between(x, [s.least for _, s in found], [s.most for _, s in found], color=colour,
                      alpha=0.15, linewidth=0)


def ticks(axes, at, form):
    axes.set_xscale("log")
    axes.set_xticks(at)
    axes.xaxis.set_major_formatter(FuncFormatter(lambda value, _: form(int(value))))
    axes.xaxis.set_minor_locator(NullLocator())


def save(figure, path):
    figure.savefig(path, format="svg", metadata={"Date": None, "Creator": None}, bbox_inches="tight")
    plt.close(figure)


def throughput(results, path):
    lines = {}
    for result in results.find("transfer", run="matrix", op="write", pattern="scattered"):
        for one in result["rows"]:
            found = spread(one, "gb_per_s")
            lines.setdefault(one["subject"], []).append((result["block_size"], found))
    if not lines:
        return
    figure, axes = plt.subplots(figsize=(8.2, 4.6))
    for subject in STYLES:
        if subject in lines:
            line(axes, subject, sorted(lines[subject], key=lambda point: point[0]))
    ticks(axes, sorted({x for costs in lines.values() for x, _ in costs}), size)
    axes.set_ylim(bottom=0)
    axes.set_xlabel("block size")
    axes.set_ylabel("GB/s")
    axes.set_title("64 MiB written in scattered blocks, process to process on one host", loc="left", fontsize=11)
    axes.legend(loc="upper left", bbox_to_anchor=(1.01, 1), frameon=False, fontsize=9)
    save(figure, path)


def compact(count):
    """1,000,000 is 1M: the panels are small."""
    for unit, letter in ((1_000_000, "M"), (1000, "k")):
        if count >= unit:
            return f"{count // unit}{letter}"
    return str(count)


def scaling(results, path):
    found = [(curve, points(results, curve[0], curve[1], curve[3])) for curve in CURVES]
    found = [(curve, lines) for curve, lines in found if lines]
    if not found:
        return
    rows = (len(found) + 1) // 2
    figure, panels = plt.subplots(rows, 2, figsize=(9.4, 3.3 * rows), squeeze=False)
    flat = list(panels.flat)
    for axes in flat[len(found):]:
        axes.remove()
    labels = {}
    for axes, ((_, key, title, per), lines) in zip(flat, found):
        for (subject, ucx_tls), costs in lines.items():
            line(axes, subject, [(x, s.map(lambda ns: ns / 1000)) for x, s in costs], ucx_tls)
        ticks(axes, sorted({x for costs in lines.values() for x, _ in costs}),
              size if key == "region_bytes" else compact)
        axes.set_yscale("log")
        # Whole decades: else what is flat looks steep.
        costs = [value for costs in lines.values() for _, s in costs for value in (s.least * 1e-3, s.most * 1e-3)]
        axes.set_ylim(10 ** math.floor(math.log10(min(costs))), 10 ** math.ceil(math.log10(max(costs))))
        axes.yaxis.set_major_formatter(FuncFormatter(lambda value, _: f"{value:g}"))
        axes.yaxis.set_minor_formatter(NullFormatter())
        axes.set_title(title, loc="left", fontsize=10)
        axes.set_ylabel(f"µs per {per}")
        for handle, label in zip(*axes.get_legend_handles_labels()):
            labels[label] = handle
    figure.tight_layout()
    figure.legend(labels.values(), labels.keys(), loc="upper center", bbox_to_anchor=(0.5, 0),
                  ncol=4, frameon=False, fontsize=9)
    save(figure, path)


def draw(results, output):
    with matplotlib.rc_context(SETTINGS):
        throughput(results, output / "performance.svg")
        scaling(results, output / "performance_scaling.svg")
