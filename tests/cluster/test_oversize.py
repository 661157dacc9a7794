"""A batch that is too long for one message fails by itself, and nobody else waits for it."""

import asyncio
from pathlib import Path

import pytest

from plait.cluster import oversize
from plait.cluster.messages import CloseTask, JobFailed, Update
from plait.cluster.model_messages import CallFailed, ForwardBackward, OpenModel
from plait.observe.events import StepCommitted
from plait.server.call import CallError
from plait.types.datum import Datum
from plait.types.lora import LoraConfig
from tests.cluster.groups.test_moves import two_bases

LONG, SHORT = Datum((1,) * 9000, (2,) * 9000, logprobs=(-0.1,) * 9000), Datum((1,), (2,))
LIMIT_BYTES = oversize.MARGIN_BYTES + 50_000
EVENT = StepCommitted(
    time_s=0.0, task="a", step=1, adapter_digest="", loss=0.0, grad_norm=0.0, learning_rate=0.0, num_sequences=1,
    num_trained_tokens=1,
)  # fmt: skip


def update(*datums: Datum) -> Update:
    return Update("a", datums, 1e-4, 0, EVENT, 0.0)


def test_only_batches_that_are_too_long_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    assert oversize.refused(update(LONG)) is None
    monkeypatch.setattr(oversize, "MAX_FRAME_BYTES", LIMIT_BYTES)
    assert oversize.refused(update(SHORT)) is None
    assert oversize.refused(update(*[SHORT] * 100)) is None, "what may be too long is measured"
    assert oversize.refused(CloseTask("a")) is None
    refused = oversize.refused(update(LONG))
    assert isinstance(refused, JobFailed)
    assert refused.task == "a"
    assert "at most 50000" in refused.error
    failed = oversize.refused(ForwardBackward("m", 7, (SHORT, LONG), "{}"))
    assert isinstance(failed, CallFailed)
    assert (failed.model_id, failed.seq_id, failed.is_user_error) == ("m", 7, True)
    assert failed.error.startswith("2 datums take ")


def test_calls_behind_it_go_on(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    async def called() -> None:
        async with two_bases(monkeypatch, tmp_path, 0) as (disk, [base, _other]):
            await base.trainer.open(OpenModel("m", "t", LoraConfig(4, 8.0, ("q_proj",), 0), "folder"))
            monkeypatch.setattr(oversize, "MAX_FRAME_BYTES", LIMIT_BYTES)
            with pytest.raises(CallError, match="1 datums take"):
                await base.trainer.call(ForwardBackward("m", 1, (LONG,), "{}"))
            done = await base.trainer.call(ForwardBackward("m", 2, (SHORT,), "{}"))
            assert done.seq_id == 2
            assert disk.of("group-0").gradients["a/train", "m"] == [2]

    asyncio.run(called())
