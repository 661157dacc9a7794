"""Real runs that train another run's adapter further, also where it has changed or gone before the run is resumed."""

import asyncio
import shutil
from pathlib import Path
from typing import Any

import pytest

from plait.client.runs import drive, open_run
from plait.client.start_points import create_run, with_shapes
from plait.cluster import worker
from plait.config.load import load_settings
from plait.config.run import RunSettings
from plait.models.invariance import InvarianceReport
from plait.observe.events import AnyEvent, Note, StepCommitted, TaskStateChanged
from plait.observe.log import read_latest_events
from plait.state.records import read_record
from plait.state.rundir import RunDirectory
from plait.types.errors import PlaitError
from tests.runs import digests, tiny_settings, tiny_task

THREADS = {"layout": "shared", "executor": "thread", "environment_processes": 1}


@pytest.fixture(autouse=True)
def _exact(monkeypatch: pytest.MonkeyPatch) -> None:
    """Threads as workers: it is theirs too."""
    monkeypatch.setattr(worker, "self_test", lambda *_: InvarianceReport(True, "as told"))


def new_run(folder: Path, task: dict[str, Any], **changes: Any) -> tuple[RunSettings, RunDirectory]:
    return create_run(with_shapes(tiny_settings(folder, task, workers=THREADS, **changes)), folder / "runs")


def carry_out(settings: RunSettings, directory: RunDirectory, *, resume: bool = False, last_step: int | None = None) -> str:
    """To the end, or until `last_step` is durable."""

    async def main() -> str:
        def on_event(event: AnyEvent) -> None:
            if isinstance(event, StepCommitted) and event.step == last_step:
                asyncio.get_running_loop().call_soon(work.cancel)

        with open_run(settings, directory, resume) as run:
            run.listeners.append(on_event)
            work = asyncio.ensure_future(drive(settings, directory, run))
            try:
                return await work
            except asyncio.CancelledError:
                return "interrupted"

    return asyncio.run(main())


def test_training_goes_on_from_another_runs_adapter_bit_for_bit_whatever_becomes_of_that(tmp_path: Path) -> None:
    first = new_run(tmp_path, tiny_task("a", steps=2))
    assert carry_out(*first) == "done"
    task = tiny_task("b", steps=2, start_from=str(first[1].tasks_folder / "a"))
    del task["lora"]
    unbroken, broken = new_run(tmp_path, task), new_run(tmp_path, task)
    assert carry_out(*unbroken) == "done"
    source, begun = read_record(first[1].steps_folder("a"), 2), read_record(unbroken[1].steps_folder("b"), 0)
    assert begun.adapter_digest == begun.start_digest == source.adapter_digest
    assert unbroken[0].tasks[0].lora.rank == 4
    note = next(e for e in read_latest_events(unbroken[1].events) if isinstance(e, Note) and e.task == "b")
    assert note.message.endswith(f"tasks/a/steps/000002 (digest {source.adapter_digest})")

    shutil.rmtree(first[1].path)
    assert carry_out(*broken, last_step=1) == "interrupted"
    assert carry_out(load_settings(broken[1].config), broken[1], resume=True) == "done"
    assert digests(broken[1], "b") == digests(unbroken[1], "b")
    shutil.rmtree(broken[1].steps_folder("b"))  # All records are lost: it begins again.
    assert carry_out(load_settings(broken[1].config), broken[1], resume=True) == "done"
    assert digests(broken[1], "b") == digests(unbroken[1], "b")


def test_an_adapter_of_another_base_ends_its_task_and_names_both(tmp_path: Path) -> None:
    first = new_run(tmp_path, tiny_task("a", steps=1, warm_start={"steps": 0}))
    assert carry_out(*first) == "done"
    other = tmp_path / "other"
    from plait.models.tiny import make_tiny_model

    make_tiny_model(other / "model", hidden_size=128, intermediate_size=256, head_dim=64, seed=9)
    task = tiny_task("b", steps=1, start_from=str(first[1].path))
    second = new_run(other, task)
    assert carry_out(*second) == "failed"
    failed = [e for e in read_latest_events(second[1].events) if isinstance(e, TaskStateChanged) and e.state == "failed"]
    base = read_record(first[1].steps_folder("a"), 0).base_digest
    assert f"was trained on base {base}; this task is on base " in failed[0].cause
    (second[1].start_folder("b") / "start.json").unlink()
    with pytest.raises(PlaitError, match=r"start\.json cannot be read"):
        carry_out(*second)
