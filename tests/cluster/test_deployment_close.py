"""However a deployment's end fails, no worker of it is left."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from plait.observe.events import EngineSample
from tests.cluster.groups.test_moves import two_bases

SAMPLE = EngineSample(
    time_s=0.0, engine="rollout", num_rows=1, num_waiting=0, num_queued=0, reserved_tokens=0, cache_tokens=1
)  # fmt: skip


def refuse(*_: object) -> Any:
    raise OSError("no space left")


@pytest.mark.parametrize("failing", ["log", "lengths", "groups"])
def test_workers_end_when_a_log_or_a_file_cannot_be_written(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, failing: str) -> None:
    async def ended() -> None:
        async with two_bases(monkeypatch, tmp_path, 0) as (_, [base, _other]):
            deployment = base.backend.deployment
            assert deployment.lengths is not None
            with pytest.MonkeyPatch.context() as patch:
                if failing == "log":
                    patch.setattr(deployment._sampler, "flush", lambda: [SAMPLE])
                    patch.setattr(base.backend, "on_engine", refuse)
                elif failing == "lengths":
                    patch.setattr(deployment.lengths, "close", refuse)
                else:
                    patch.setattr(base.groups, "on_leave", refuse)
                with pytest.raises(OSError, match="no space left"):
                    await base.backend.close()
            assert base.groups.named("group-0").pid is None
            assert "a" not in base.groups.jobs

    asyncio.run(ended())
