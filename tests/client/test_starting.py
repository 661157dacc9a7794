"""A real run on two deployments of one base: what its start does once for all, and what it tells of itself meanwhile."""

import asyncio
from pathlib import Path

import pytest

from plait.client.runs import drive, open_run
from plait.cluster import worker
from plait.config.load import effective_toml
from plait.models.invariance import InvarianceReport
from plait.observe.under_way import UnderWay, Work
from plait.state.rundir import RunDirectory
from tests.runs import committed_steps, tiny_settings, tiny_task


class Heard(UnderWay):
    def __init__(self) -> None:
        super().__init__()
        self.begun: list[tuple[str, str]] = []

    def begin(self, who: str, kind: str, text: str, num_all: int = 0) -> Work:
        self.begun.append((who, text))
        return super().begin(who, kind, text, num_all)


def test_one_self_test_for_all_deployments_of_a_base_and_all_that_goes_on_is_told(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    tested: list[int] = []

    def counted(*arguments: object) -> InvarianceReport:
        tested.append(1)
        return InvarianceReport(True, "as told")

    monkeypatch.setattr(worker, "self_test", counted)  # Threads as workers: it is theirs too.
    model = {"name": "again", "path": str(tmp_path / "model"), "max_context_tokens": 128}
    settings = tiny_settings(
        tmp_path, tiny_task("a", steps=1, evaluation={"questions": 2}), tiny_task("b", steps=1, model="again"),
        models=[model], workers={"executor": "thread", "environment_processes": 1},
    )  # fmt: skip
    directory, heard = RunDirectory.create(tmp_path / "runs", settings.name, effective_toml(settings)), Heard()
    with open_run(settings, directory, resume=False) as run:
        run.under_way = heard
        assert asyncio.run(drive(settings, directory, run)) == "done"
    assert len(tested) == 1
    assert [step.step for step in committed_steps(directory, "b")] == [1]
    for who in ("rollout", "train", "again/rollout", "again/train"):
        assert [text for name, text in heard.begun if name == who] == [
            "loading the model",
            "testing batch invariance",
            "laying the weights out",
        ]
    told = [text for name, text in heard.begun if name == "a"]
    assert sorted(told[:2]) == ["evaluating version 0", "rolling out step 1"]
    assert told[2:] == ["training step 1", "evaluating version 1"]
    assert heard.now() == []
