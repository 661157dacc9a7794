"""Whole runs in which a task trains all weights, with real worker processes."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest
import torch

from plait.cli.main import main
from plait.client.policies import export_policy, open_policy
from plait.client.runs import run_file
from plait.config.load import effective_toml
from plait.config.run import RunSettings
from plait.models.weights import load_model
from plait.state.records import list_steps, read_record
from plait.state.rundir import RunDirectory
from plait.types.errors import StateError
from tests.client.test_resume import RUN
from tests.models.reference import decoder_logits, load_decoder
from tests.runs import committed_steps, digests, full_task, tiny_settings, tiny_task

ONE_WORKER = {"layout": "shared", "environment_processes": 1}
THREADS = {"executor": "thread", "environment_processes": 1}
"""Where what is proved is not that of processes: they start in no time."""
EVALUATED = {"questions": 4, "every_steps": 2}


def run_all(folder: Path, settings: RunSettings) -> RunDirectory:
    directory = RunDirectory.create(folder, settings.name, effective_toml(settings))
    assert run_file(settings, directory, show_progress=False) == "done"
    return directory


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("full")


@pytest.fixture(scope="module")
def together(folder: Path) -> RunDirectory:
    """Two tasks of all weights, of which a worker holds one at a time, and an adapter."""
    tasks = (full_task("f", steps=3, evaluation=EVALUATED), tiny_task("a", steps=2), full_task("g", steps=3))
    engine = {"max_rows": 16, "slot_tokens": 2048, "pool_tokens": 2048, "chunk_tokens": 5, "full_policies": 1}
    return run_all(folder / "together", tiny_settings(folder, *tasks, engine=engine))


def test_an_adapter_beside_them_trains_as_it_does_alone(folder: Path, together: RunDirectory) -> None:
    alone = run_all(folder / "alone", tiny_settings(folder, tiny_task("a", steps=2), workers=THREADS))
    assert digests(together, "a") == digests(alone, "a")


def test_killed_and_resumed_alone_it_trains_the_same_steps(folder: Path, together: RunDirectory, tmp_path: Path) -> None:
    settings = tiny_settings(folder, full_task("f", steps=3, evaluation=EVALUATED), workers=ONE_WORKER)
    directory = RunDirectory.create(tmp_path, "broken", effective_toml(settings))
    process = subprocess.Popen([sys.executable, "-c", RUN, str(directory.path)], start_new_session=True)
    steps = directory.steps_folder("f")
    while not list_steps(steps)[1:] and process.poll() is None:
        time.sleep(0.01)
    os.kill(process.pid, signal.SIGKILL)
    process.wait()
    while directory.holder() is not None:
        time.sleep(0.01)
    threads = settings.model_copy(update={"workers": tiny_settings(folder, tiny_task("a"), workers=THREADS).workers})
    assert run_file(threads, directory, resume=True, show_progress=False) == "done"
    assert digests(directory, "f") == digests(together, "f")
    left, right = (read_record(run.steps_folder("f"), 3) for run in (directory, together))
    assert left.optimizer_digest == right.optimizer_digest


def test_every_batch_is_exactly_on_policy(together: RunDirectory) -> None:
    steps = committed_steps(together, "f") + committed_steps(together, "g")
    assert len({step.adapter_digest for step in steps}) == len(steps) == 6
    assert any(step.grad_norm > 0 for step in steps)
    assert {step.ratio_mean for step in steps if step.ratio_mean is not None} == {1.0}
    assert {step.logprob_gap_max for step in steps if step.logprob_gap_max is not None} == {0.0}


def test_only_the_last_two_records_and_the_best_are_kept(together: RunDirectory) -> None:
    assert list_steps(together.steps_folder("g")) == [2, 3]
    assert set(list_steps(together.steps_folder("f"))) >= {2, 3}
    assert read_record(together.steps_folder("g"), 3).training == "full"


def test_an_exported_version_is_a_model_that_transformers_loads(folder: Path, together: RunDirectory, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    exported = export_policy(together, "f", step=3, to=tmp_path / "exported")
    tokens = torch.tensor([AutoTokenizer.from_pretrained(exported)("How many letters?").input_ids])
    model = AutoModelForCausalLM.from_pretrained(exported, dtype=torch.float32)
    ours = decoder_logits(load_decoder(exported), tokens)
    torch.testing.assert_close(model(tokens).logits, ours, atol=1e-4, rtol=0)
    assert (decoder_logits(load_decoder(folder / "model"), tokens) - ours).abs().max() > 1e-2
    with open_policy(together, "f", step=3) as policy:
        rounded = load_model(exported, torch.bfloat16)[1]
        assert policy._engine.decoder.embedding_VE.equal(rounded["embed_tokens"])
        assert policy.sample("How many?", n=2, max_new_tokens=8) == policy.sample("How many?", n=2, max_new_tokens=8)
    with pytest.raises(StateError, match="not an empty folder"):
        export_policy(together, "f", step=3, merged=True, to=exported)


def test_it_is_shown_like_any_other(together: RunDirectory, capsys: pytest.CaptureFixture[str]) -> None:
    for command in (["status", together.path], ["show", together.path, "f"], ["report", together.path]):
        with pytest.raises(SystemExit) as caught:
            main([str(word) for word in command])
        assert not caught.value.code, capsys.readouterr()
