"""What an engine counts, by name: totals since its process started. A name that is absent was not counted.

A counter of another name is shown as it is; one that ends in `LEVEL` is no total, and the latest holds. `grown` adds up totals
across restarts of the process.
"""

from collections.abc import Iterable, Mapping

LEVEL = "_used_bytes"
COMPUTED_TOKENS = "computed_prompt_tokens"
"""Context tokens that no cache had."""
DECODED_TOKENS = "decoded_tokens"
HIT_TOKENS = {"device": "device_hit_tokens", "host": "host_hit_tokens", "disk": "disk_hit_tokens", "store": "store_hit_tokens"}
"""Context tokens that came from each tier of the cache."""
PULLS = "pulls"
"""Chunks that waited for blocks from a disk or a store, and got some,"""
PULLED_BYTES = "pulled_bytes"
"""so many."""
DRAFTED_TOKENS = "drafted_tokens"
"""Proposed."""
ACCEPTED_TOKENS = "accepted_tokens"
"""Of those."""
DRAFTS = "drafts"
"""How often a row's step verified a draft."""


def grown(before: Mapping[str, float], latest: Mapping[str, float], totals: Mapping[str, float]) -> dict[str, float]:
    """`totals` with what has come since `before`. A counter that fell began anew at 0, with its process."""
    names = dict.fromkeys([*totals, *latest])
    sums = {name: totals.get(name, 0.0) + _growth(before.get(name, 0.0), latest.get(name, 0.0)) for name in names}
    return sums | {name: latest.get(name, 0.0) for name in names if name.endswith(LEVEL)}


def _growth(before: float, latest: float) -> float:
    return latest - before if latest >= before else latest


def hit_share(counters: Mapping[str, float], tiers: Iterable[str] = HIT_TOKENS) -> float | None:
    """Share of the context tokens that came from these tiers; None if none was needed yet."""
    hits = {tier: counters.get(name, 0.0) for tier, name in HIT_TOKENS.items()}
    needed = sum(hits.values()) + counters.get(COMPUTED_TOKENS, 0.0)
    return sum(hits[tier] for tier in tiers) / needed if needed else None


def pulls_text(counters: Mapping[str, float]) -> str:
    """Empty if nothing was pulled."""
    pulls, mebibytes = counters.get(PULLS, 0.0), counters.get(PULLED_BYTES, 0.0) / 2**20
    return f"{pulls:,.0f} pull{'' if pulls == 1 else 's'} of {mebibytes:,.1f} MiB" if pulls else ""


def acceptance(counters: Mapping[str, float]) -> float | None:
    """Share of the drafted tokens that were drawn; None without drafts."""
    drafted = counters.get(DRAFTED_TOKENS, 0.0)
    return counters.get(ACCEPTED_TOKENS, 0.0) / drafted if drafted else None


def draft_length(counters: Mapping[str, float]) -> float | None:
    """Mean tokens of a draft."""
    drafts = counters.get(DRAFTS, 0.0)
    return counters.get(DRAFTED_TOKENS, 0.0) / drafts if drafts else None
