"""What each engine is told of its tiers, on one machine and on several."""

import sys
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import msgspec
import pytest

from plait.cluster.kv_tiers import STORE_FOLDER, KvTiers, make_tiers
from plait.config.run import EngineSettings
from plait.config.store import StoreSettings
from plait.kv.plan import TierPlan
from plait.kv.pool import BLOCK_TOKENS
from plait.kv.tiers import LowerTiers
from plait.types.errors import ConfigError
from tests.kv.blocks import BLOCK, PAYLOAD_BYTES, ROOT, links_of
from tests.kv.test_tiers import found, store

TOKEN_BYTES = PAYLOAD_BYTES // BLOCK_TOKENS + 1
TOKENS = tuple(range(4 * BLOCK))


def settings(**more: Any) -> EngineSettings:
    return EngineSettings(host_tokens=2048, **more)


def opened(tiers: KvTiers, engine: str) -> LowerTiers:
    """As another process gets it."""
    plan = msgspec.msgpack.decode(msgspec.msgpack.encode(tiers.plan(engine)), type=TierPlan)
    return plan.open(PAYLOAD_BYTES, BLOCK)


@pytest.mark.parametrize("is_apart", [False, True])
def test_what_engines_share(tmp_path: Path, is_apart: bool) -> None:
    asked = settings(store=StoreSettings(kind="file", tokens=1024))
    tiers = KvTiers(asked, ["a", "b"], TOKEN_BYTES, tmp_path, is_apart=is_apart)
    first, second = opened(tiers, "a"), opened(tiers, "b")
    assert first.host.counters.capacity_bytes == second.host.counters.capacity_bytes >= 1024 // BLOCK_TOKENS * PAYLOAD_BYTES
    assert first.counters.store.capacity_bytes == 512 * TOKEN_BYTES
    store(first, TOKENS)
    first.flush()
    assert found(second, TOKENS) == (0 if is_apart else len(TOKENS))
    pull = second.expect(ROOT, TOKENS, 0)
    assert (pull is None) == (not is_apart), "what lies in this machine's memory is not pulled"
    second.flush()
    assert found(second, TOKENS) == len(TOKENS)
    assert len(list((tmp_path / STORE_FOLDER / "a").iterdir())) == len(links_of(TOKENS))
    for one in (first, second, tiers):
        one.close()
    assert not list(tmp_path.rglob("*"))


def test_a_deployments_blocks_in_mooncake_are_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = settings(store=StoreSettings(kind="mooncake", tokens=1024, address="10.0.0.5:50051", protocol="rdma", device="mlx5_0"))
    tiers, others = (KvTiers(asked, ["a", "b"], TOKEN_BYTES, tmp_path / name, is_apart=True) for name in "12")
    plan, sibling, other = tiers.plan("a").store, tiers.plan("b").store, others.plan("a").store
    assert plan is not None
    assert (plan.master, plan.protocol, plan.device, plan.num_bytes) == ("10.0.0.5:50051", "rdma", "mlx5_0", 512 * TOKEN_BYTES)
    assert plan == sibling
    assert other is not None
    assert other.namespace != plan.namespace
    monkeypatch.setitem(sys.modules, "mooncake.store", None)
    with pytest.raises(ConfigError, match=r"plait\[mooncake\]"):
        opened(tiers, "a")


def test_mooncake_that_is_not_installed_is_said_before_anything_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mooncake.store", None)
    store = StoreSettings(kind="mooncake", tokens=1024, address="10.0.0.5:50051")
    with pytest.raises(ConfigError, match=r'(?s)kind = "mooncake" needs.*plait\[mooncake\]'):
        make_tiers(Mock(engine=settings(store=store)), "no model", [], None)
