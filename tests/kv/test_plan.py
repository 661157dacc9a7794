"""A plan is opened into tiers of the size it says."""

from pathlib import Path

import msgspec
import pytest

from plait.kv.plan import TierPlan, memory_bytes
from plait.kv.segment import Rank
from plait.kv.shared_memory import SharedMemory
from tests.kv.blocks import BLOCK, PAYLOAD_BYTES, links_of, payload_of


def test_planned_tiers_hold_what_was_planned(tmp_path: Path) -> None:
    memories = [SharedMemory(memory_bytes(39 * BLOCK, PAYLOAD_BYTES // BLOCK, BLOCK)) for _ in range(2)]
    first, second = (memory.path for memory in memories)
    plan = TierPlan(first, (second,), str(tmp_path / "0"), (str(tmp_path / "1"),), 10**6)
    plan = msgspec.msgpack.decode(msgspec.msgpack.encode(plan), type=TierPlan)
    tiers = plan.open(PAYLOAD_BYTES, BLOCK)
    tiers.store(links_of(range(40)), payload_of, Rank.EXPECTED)
    tiers.measure()
    assert tiers.counters.host.capacity_bytes == 40 * PAYLOAD_BYTES
    assert tiers.counters.host.used_bytes == 10 * PAYLOAD_BYTES
    assert tiers.counters.cold.capacity_bytes == 10**6
    assert (tmp_path / "0").is_dir()
    tiers.close()
    assert TierPlan(first).open(PAYLOAD_BYTES, BLOCK).cold is None
    for memory in memories:
        memory.close()
    with pytest.raises(OSError, match="No such file"):
        TierPlan(first).open(PAYLOAD_BYTES, BLOCK)
