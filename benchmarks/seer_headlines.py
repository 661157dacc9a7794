"""What was set out to reach, and what was reached."""

from collections.abc import Mapping, Sequence
from statistics import geometric_mean
from typing import Any

from benchmarks.common import headline

BINDING_SHARES = (0.15, 0.3)
"""Sizes of cache, as a share of the peak need, at which memory decides."""
AMPLE_SHARE = 2.0
Row = Mapping[str, Any]


def headlines_of(rows: Sequence[Row]) -> dict[str, dict[str, Any]]:
    forced = [row for row in rows if "free" not in row["case"] and row["engines"] > 1]
    binding = [row for row in forced if row["cache_share"] in BINDING_SHARES]
    ample = [row for row in forced if row["cache_share"] == AMPLE_SHARE]
    if not forced:
        return {}
    where = f"geometric mean of {len({(r['case'], r['cache_share']) for r in binding})} settings with little cache"
    return {
        "throughput_without_drafting": _gain(binding, "+ context", "tokens_per_s", 1.4, where),
        "throughput_with_drafting": _gain(binding, "+ drafting", "tokens_per_s", 1.6, where),
        "tail_saved": _tail(binding),
        "share_of_oracle": _against(binding, "+ context", "oracle", 0.96, "x", "tokens/s of the oracle; " + where),
        "worst_with_ample_cache": _worst(ample),
        "outputs_the_same": _same(rows),
    }


def _pairs(rows: Sequence[Row], system: str, base: str) -> list[tuple[Row, Row]]:
    found = {(row["case"], row["cache_share"], row["system"]): row for row in rows}
    keys = dict.fromkeys((case, share) for case, share, _ in found)
    return [(found[*key, system], found[*key, base]) for key in keys if (*key, system) in found and (*key, base) in found]


def _gain(rows: Sequence[Row], system: str, figure: str, goal: float, note: str) -> dict[str, Any]:
    return _against(rows, system, "pinned groups", goal, "x", note, figure)


def _against(
    rows: Sequence[Row], system: str, base: str, goal: float, unit: str, note: str, figure: str = "tokens_per_s"
) -> dict[str, Any]:
    ratios = [mine[figure] / its[figure] for mine, its in _pairs(rows, system, base)]
    if not ratios:
        return headline(None, goal, unit, "not run")
    each = ", ".join(f"{ratio:.2f}" for ratio in ratios)
    return headline(geometric_mean(ratios), goal, unit, f"{note}: {each}")


def _tail(rows: Sequence[Row]) -> dict[str, Any]:
    """Only where completion is no later."""
    pairs = [(mine, its) for mine, its in _pairs(rows, "+ context", "pinned groups") if mine["completion_s"] <= its["completion_s"]]
    if not pairs:
        return headline(None, 0.75, "share", "completion is no earlier anywhere")
    saved = [1 - mine["last_tenth_s"] / its["last_tenth_s"] for mine, its in pairs]
    return headline(sum(saved) / len(saved), 0.75, "share", "of the last tenth's time: " + ", ".join(f"{x:.0%}" for x in saved))


def _same(rows: Sequence[Row]) -> dict[str, Any]:
    return headline(float(all(row["same_outputs"] for row in rows)), 1, "1 if all are", "tokens and log-probabilities")


def _worst(rows: Sequence[Row]) -> dict[str, Any]:
    ratios = [mine["tokens_per_s"] / its["tokens_per_s"] for mine, its in _pairs(rows, "+ context", "pinned groups")]
    if not ratios:
        return headline(None, 0.97, "x", "not run")
    return headline(min(ratios), 0.97, "x", "tokens/s with context over pinned groups: " + ", ".join(f"{r:.2f}" for r in ratios))
