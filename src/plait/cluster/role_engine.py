"""The engine of a worker as its settings ask for it: with tiers of cache below its own, and with drafts from siblings."""

import time
from collections.abc import Mapping

from plait.cluster.messages import Configure
from plait.drafting.local_drafter import LocalDrafter
from plait.drafting.planner import DraftPlanner
from plait.drafting.prompt_history import PromptHistory
from plait.engine.adapters import AdapterStore
from plait.engine.engine import Engine
from plait.engine.group_drafter import GroupDrafter
from plait.engine.kv_manager import KvManager
from plait.engine.sampler import Sampler
from plait.engine.speculation import Speculation
from plait.engine.step_times import measure_step_times, token_step_of
from plait.engine.stops import Decode
from plait.kv.pool import BLOCK_TOKENS
from plait.models.decoder import Decoder
from plait.observe import engine_counters as counters

MAX_PROFILED_ROWS = 16
"""Steps of more rows are learnt as they come; measuring them all would take long at the start."""


class RoleEngine:
    """`drafter` is None without drafting."""

    def __init__(
        self, settings: Configure, decoder: Decoder, adapters: AdapterStore, base_digest: str, batch_invariant: bool, decode: Decode
    ) -> None:
        sampler = Sampler(use_gumbel=not batch_invariant)
        self.drafter = make_drafter(settings, decoder, sampler) if settings.drafting == "auto" else None
        self.speculation = Speculation(self.drafter, time.perf_counter) if self.drafter is not None else None
        self.engine = Engine(
            decoder, adapters, base_digest, max_rows=settings.max_rows, slot_tokens=settings.slot_tokens,
            pool_tokens=settings.pool_tokens, max_context_tokens=settings.max_context_tokens, sampler=sampler, decode=decode,
            speculation=self.speculation,
        )  # fmt: skip
        if settings.tiers is not None:
            self.engine.kv.attach(settings.tiers.open(self.engine.kv.codec.payload_bytes, BLOCK_TOKENS))

    def counters(self) -> Mapping[str, float]:
        """By the names of `observe.engine_counters`."""
        told, counts = self.speculation, tier_counts(self.engine.kv)
        if told is not None:
            counts |= {
                counters.DRAFTED_TOKENS: told.num_proposed, counters.ACCEPTED_TOKENS: told.num_accepted,
                counters.DRAFTS: told.num_verified_rows,
            }  # fmt: skip
        return counts


def tier_counts(kv: KvManager) -> dict[str, float]:
    """Of the tiers below the device's, as far as there are any."""
    if kv.lower is None:
        return {}
    told = kv.counters
    below = {"disk": told.cold} if kv.lower.cold is not None else {}
    below |= {"store": told.store} if kv.lower.far is not None else {}
    tiers = {"host": told.host, **below}
    counts: dict[str, float] = {
        "host_evicted_blocks": told.host.evictions, "moved_tokens": told.moved_tokens,
        "device_misses": told.device.misses, "device_used_bytes": told.device.used_bytes,
        counters.PULLS: told.pulls, counters.PULLED_BYTES: told.pulled_bytes,
    }  # fmt: skip
    counts["corrupt_blocks"] = sum(tier.corrupt for tier in tiers.values())
    for name, tier in tiers.items():
        counts |= {counters.HIT_TOKENS[name]: tier.hit_tokens, f"{name}_misses": tier.misses, f"{name}_used_bytes": tier.used_bytes}
    for name, tier in below.items():
        counts |= {
            f"{name}_failures": tier.failures, f"{name}_read_bytes": tier.read_bytes, f"{name}_written_bytes": tier.written_bytes,
        }  # fmt: skip
    return counts


def make_drafter(settings: Configure, decoder: Decoder, sampler: Sampler) -> GroupDrafter:
    """Its idea of what steps take is measured here, and corrected by every step."""
    profile = measure_step_times(decoder, time.perf_counter, min(settings.max_rows, MAX_PROFILED_ROWS), sampler)
    planner = DraftPlanner(profile, max_paths=settings.draft_paths, token_step=token_step_of(decoder))
    return GroupDrafter(LocalDrafter(), planner, history=PromptHistory() if settings.draft_history else None)
