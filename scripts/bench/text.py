"""How figures and tables are written."""


def table(header, rows, words=(0,)):
    """A Markdown table; columns of words start at the left, and figures end at the right."""
    lines = [header, ["---" if i in words else "---:" for i in range(len(header))], *rows]
    return "\n".join("| " + " | ".join(line) + " |" for line in lines) + "\n"


def digits(value):
    """Three figures that count, and no exponent."""
    size = abs(value)
    return f"{value:,.{0 if size >= 100 else 1 if size >= 10 else 2}f}"


def size(count):
    for unit, name in ((1 << 30, "GiB"), (1 << 20, "MiB"), (1 << 10, "KiB")):
        if count >= unit and count % (unit >> 6) == 0:
            return f"{count / unit:g} {name}"
    return f"{count:,} bytes"


def time(ns):
    for unit, name in ((1e9, "s"), (1e6, "ms"), (1e3, "µs")):
        if abs(ns) >= unit:
            return f"{digits(ns / unit)} {name}"
    return f"{ns:.0f} ns"


def share(value):
    return f"{100 * value:.2f} %"


def with_range(spread, form=digits):
    """12.3 (11.8 to 12.9)"""
    if spread is None:
        return "–"
    median, least, most = (form(v) for v in (spread.median, spread.least, spread.most))
    return median if least == most else f"{median} ({least} to {most})"
