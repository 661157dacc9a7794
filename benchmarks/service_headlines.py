"""What the rows of a run claim."""

from collections.abc import Mapping, Sequence
from typing import Any

from benchmarks.common import headline

Row = Mapping[str, Any]
Headlines = dict[str, dict[str, Any]]
MAX_SLOWDOWN = 1.5
OWED_SLICES = 2
"""The one that runs when a short call comes, and one more if another call has gone past the long one just before."""
MAX_GROWTH = 1.5
UNPACED = "without pause"


def headlines_of(rows: Sequence[Row]) -> Headlines:
    """Of a run of all measures; SkyRL's may be missing."""
    has_peer = any(row["setting"] == "skyrl" for row in rows)
    return {
        **_throughput(rows),
        **_fairness(rows),
        **_publishing(rows),
        **_many_at_once(rows),
        **(_against_peer(rows) if has_peer else _without_peer()),
    }


def find(rows: Sequence[Row], measure: str, setting: str) -> Row:
    return next(row for row in rows if row["measure"] == measure and row["setting"] == setting)


def _throughput(rows: Sequence[Row]) -> Headlines:
    fetched = max((row for row in rows if row["measure"] == "protobuf result"), key=lambda row: float(row["per_s"]))
    note = f"the faster of two rounds of {fetched['count']}; median {fetched['median_s'] * 1e3:.1f} ms"
    return {"protobuf_results_per_s": headline(fetched["per_s"], 1000, "results/s", note)}


def _fairness(rows: Sequence[Row]) -> Headlines:
    idle, busy = (find(rows, "16-token sample", setting) for setting in ("idle", "while another trains"))
    note = f"median {idle['median_s'] * 1e3:.1f} ms idle, {busy['median_s'] * 1e3:.1f} ms while another tenant trains"
    short = find(rows, "short training call", "behind a long one")
    waited = (
        f"longest wait {short['longest_wait_slices']:.2f} slices of {short['slice_s'] * 1e3:.0f} ms; {OWED_SLICES} are the most"
    )
    return {
        "idle_over_busy_latency_of_another_tenant": headline(
            idle["median_s"] / busy["median_s"], 1 / MAX_SLOWDOWN, "share", f"{note}: {busy['median_s'] / idle['median_s']:.2f}x"
        ),
        "quantum_over_longest_wait": headline(OWED_SLICES / max(short["longest_wait_slices"], 1e-9), 1, "share", waited),
    }


def _publishing(rows: Sequence[Row]) -> Headlines:
    steps = [row for row in rows if row["measure"] == "publish step"]
    unpaced = [row for row in steps if row["setting"] == UNPACED]
    row = next(row for row in steps if row["setting"] != UNPACED)
    num = f"{row['count']} publish steps, one {row['setting']}"
    note = f"{num}: {row['beside_tokens_per_s']:.0f} tokens/s beside them, {row['alone_tokens_per_s']:.0f} alone"
    if unpaced:
        note += f"; {unpaced[0]['share']:.2f} beside steps without pause"
    return {"tokens_per_s_beside_publishes": headline(row["share"], 0.95, "share", note)}


def _many_at_once(rows: Sequence[Row]) -> Headlines:
    bursts = [row for row in rows if "burst" in row]
    last, slowest = bursts[-1], max(bursts, key=lambda row: float(row["p95_s"]))
    kept = sum(row["whole"] for row in bursts) / sum(row["burst"] for row in bursts)
    before, peak = last["rss_before_bytes"], last["rss_peak_bytes"]
    memory = f"server and workers: {before / 2**20:.0f} MiB before the last burst, {peak / 2**20:.0f} at its peak"
    served = f"median {slowest['median_s'] * 1e3:.0f} ms, 95th {slowest['p95_s'] * 1e3:.0f} ms; before "
    served += f"{find(rows, '16-token sample', 'before')['median_s'] * 1e3:.0f} ms"
    return {
        "samples_at_once_kept": headline(kept, 1, "share", f"{last['burst']} at once through the SDK, {len(bursts)} times"),
        "memory_before_over_peak": headline(before / peak, 1 / MAX_GROWTH, "share", memory),
        "another_tenant_served_meanwhile": headline(float(min(row["count"] for row in bursts)), 1, "samples", served),
    }


PEER_GOALS = {"steps_per_s": ("training_steps_vs_skyrl", 3.0), "sampled_tokens_per_s": ("sampled_tokens_vs_skyrl", 3.0)}


def _against_peer(rows: Sequence[Row]) -> Headlines:
    plait, skyrl = (find(rows, "the same script", system) for system in ("plait", "skyrl"))
    return {
        name: headline(plait[figure] / skyrl[figure], goal, "x", f"{plait[figure]:.1f} a second against {skyrl[figure]:.2f}")
        for figure, (name, goal) in PEER_GOALS.items()
    }


def _without_peer() -> Headlines:
    return {name: headline(None, goal, "x", "SkyRL is not installed: make bench-peers") for name, goal in PEER_GOALS.values()}
