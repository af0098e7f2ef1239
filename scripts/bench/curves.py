"""What it costs to have more of something."""

from results import spread

# (how the runs are called, what grows, the title, what the time is divided by)
CURVES = (
    ("scaling-depth", "depth", "Transfers in flight, of 20 blocks of 256 bytes", "transfer"),
    ("scaling-peers", "peers", "Peers; 64 in flight, of 20 blocks of 256 bytes", "transfer"),
    ("scaling-blocks", "blocks", "Blocks of 256 bytes in one transfer", "block"),
    ("scaling-region", "region_bytes", "Region; transfers of 16 blocks of 4 KiB of its first MiB", "transfer"),
)


def points(results, run, key, per):
    """{(subject, ucx_tls): [(x, Spread of ns)]}, by transfer or by block."""
    lines = {}
    for ucx_tls in (None, "tcp"):
        for result in results.find("transfer", ucx_tls=ucx_tls, run=run):
            unit = result["blocks"] if per == "block" else 1
            for one in result["rows"]:
                cost = spread(one, "transfers_per_s").map(lambda rate: 1e9 / rate / unit)
                lines.setdefault((one["subject"], ucx_tls), []).append((result[key], cost))
    return {line: sorted(found, key=lambda point: point[0]) for line, found in lines.items()}


def growth(costs):
    """How much dearer the last is than the first."""
    return costs[-1][1].median / costs[0][1].median
