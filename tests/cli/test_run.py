"""`plait run` and `plait resume` around the driver, which is replaced here."""

import json
import sys
from importlib import import_module
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest

from plait.cli.gain import Gain, describe_gains, gains_of, is_enough
from plait.cli.main import main
from plait.config.load import load_settings
from plait.observe.events import EvaluationDone, TaskStateChanged
from plait.observe.log import EventLog
from plait.state.rundir import RunDirectory

import_module("plait.client.run")  # Before one of its modules is replaced.

TASKS = """
name = "mine"
[[tasks]]
name = "add"
environment = { kind = "calculator" }
[[tasks]]
name = "gcd"
environment = { kind = "reasoning_gym", name = "gcd" }
"""
ACCURACIES = {"add": (0.1, 0.5), "gcd": (0.25, 0.4)}


def evaluation(task: str, when: str, accuracy: float, num_questions: int = 64) -> EvaluationDone:
    version = {"before": 0, "periodic": 2, "after": 4}[when]
    return EvaluationDone(time_s=1.0, task=task, version=version, accuracy=accuracy, num_questions=num_questions, when=when)


@pytest.fixture
def calls(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> list[dict[str, Any]]:
    """Replace the driver by one that only reports accuracies; what it was called with."""
    made: list[dict[str, Any]] = []

    def run_file(settings: Any, directory: RunDirectory, **options: Any) -> None:
        made.append({"settings": settings, "directory": directory, **options})
        with EventLog(directory.events) as log:
            for task, (before, after) in ACCURACIES.items():
                log.append(evaluation(task, "before", before))
                log.append(evaluation(task, "after", after))

    module = ModuleType("plait.client.runs")
    module.run_file = run_file  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "plait.client.runs", module)
    monkeypatch.chdir(tmp_path)
    (tmp_path / "tasks.toml").write_text(TASKS)
    return made


@pytest.fixture
def tiny_model(tmp_path: Path) -> Path:
    folder = tmp_path / "tiny"
    folder.mkdir()
    config = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "vocab_size": 256,
        "hidden_size": 16,
        "intermediate_size": 32,
        "num_hidden_layers": 2,
        "num_attention_heads": 4,
        "num_key_value_heads": 2,
        "rms_norm_eps": 1e-5,
        "max_position_embeddings": 2048,
    }
    (folder / "config.json").write_text(json.dumps(config))
    return folder


def plait(*arguments: str) -> object:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    return caught.value.code


def test_without_a_file_it_explains_itself(capsys: pytest.CaptureFixture[str]) -> None:
    assert plait("run") == 2
    text = capsys.readouterr().out
    assert "plait run --example > tasks.toml" in text
    assert "[[tasks]]" in text


def test_example_is_a_valid_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert plait("run", "--example") == 0
    (tmp_path / "tasks.toml").write_text(capsys.readouterr().out)
    assert len(load_settings(tmp_path / "tasks.toml").tasks) == 2


def test_run_makes_a_directory_and_calls_the_driver(calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert plait("run", "tasks.toml") == 0
    assert plait("run", "tasks.toml", "--name", "other", "--runs", "elsewhere") == 0
    assert [call["directory"].path.relative_to(Path.cwd()).as_posix() for call in calls] == ["runs/mine", "elsewhere/other"]
    assert not calls[0]["resume"]
    assert load_settings(calls[1]["directory"].config) == calls[1]["settings"]
    assert "add  held-out accuracy 0.100 -> 0.500  (+0.400 over 64 questions)" in capsys.readouterr().out


def test_resume_takes_the_newest_or_the_named_run(calls: list[dict[str, Any]]) -> None:
    assert plait("run", "tasks.toml") == 0
    assert plait("run", "tasks.toml") == 0
    assert plait("resume") == 0
    assert plait("resume", "mine") == 0
    assert [call["directory"].name for call in calls] == ["mine", "mine-2", "mine-2", "mine"]
    assert [call["resume"] for call in calls] == [False, False, True, True]
    assert calls[3]["settings"] == calls[0]["settings"]


def test_workers_may_be_put_on_a_ray_cluster_also_when_a_run_goes_on(calls: list[dict[str, Any]]) -> None:
    assert plait("run", "tasks.toml", "--ray", "local") == 0
    assert plait("resume", "--ray", "10.0.0.5:6379") == 0
    assert plait("resume") == 0
    workers = [call["settings"].workers for call in calls]
    assert [(one.executor, one.ray_address) for one in workers] == [("ray", "local"), ("ray", "10.0.0.5:6379"), ("ray", "local")]


@pytest.mark.parametrize(("gain", "code"), [("0.1", 0), ("0.25", 1)])
def test_gate(calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str], gain: str, code: int) -> None:
    assert plait("run", "tasks.toml", "--check-gain", gain) == code
    assert ("below the bar of +0.25" in capsys.readouterr().out) == bool(code)


def test_result_as_json(calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    assert plait("run", "tasks.toml", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["tasks"]["gcd"] == {"before": 0.25, "after": 0.4, "gain": pytest.approx(0.15), "num_questions": 64}
    assert Path(result["run"]).is_dir()
    assert calls[0]["show_progress"] is False


def test_faulty_file_starts_nothing(calls: list[dict[str, Any]], capsys: pytest.CaptureFixture[str]) -> None:
    Path("bad.toml").write_text(TASKS + "group_siz = 3\n")
    assert plait("run", "bad.toml") == 2
    assert "group_siz = 3: unknown key; did you mean 'group_size'?" in capsys.readouterr().err
    assert plait("run", "absent.toml") == 2
    assert plait("run", ".") == 2
    assert plait("resume") == 2
    assert calls == []
    assert not Path("runs").exists()


def test_dry_run_states_the_numbers(calls: list[dict[str, Any]], tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("tasks.toml").write_text(f'model = {{ path = "{tiny_model}", device = "cpu" }}\n' + TASKS)
    assert plait("run", "tasks.toml", "--dry-run") == 0
    text = capsys.readouterr().out
    for part in (
        "8 groups x 8 answers = 64 trajectories a step",
        "64 x 128 = at most 8,192 sampled tokens a step",
        "memory",
        "disk",
        "time",
    ):
        assert part in text
    assert calls == []
    assert not Path("runs").exists()


def test_dry_run_as_json(calls: list[dict[str, Any]], tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    Path("tasks.toml").write_text(f'model = {{ path = "{tiny_model}", device = "cpu" }}\n' + TASKS)
    assert plait("run", "tasks.toml", "--dry-run", "--json") == 0
    result = json.loads(capsys.readouterr().out)
    assert result["memory_bytes"] == sum(need["size_bytes"] for need in result["memory"])
    assert [task["trajectories_per_step"] for task in result["tasks"]] == [64, 64]


def test_dry_run_of_several_base_models(calls: list[dict[str, Any]], tiny_model: Path, capsys: pytest.CaptureFixture[str]) -> None:
    head = f'model = {{ path = "{tiny_model}", device = "cpu" }}\nworkers = {{ train_threads = 2000, train_workers = 2 }}\n'
    small = f'[[models]]\nname = "small"\npath = "{tiny_model}"\ndevice = "cpu"\n'
    Path("tasks.toml").write_text(head + TASKS + 'model = "small"\n' + small)
    assert plait("run", "tasks.toml", "--dry-run") == 0
    told = capsys.readouterr()
    assert f"2 tasks on {tiny_model}, small" in told.out
    assert "steps on small" in told.out
    assert "small: 65,536 tokens (slot + pool)" in told.out
    assert "workers.rollout_threads + workers.train_workers x workers.train_threads of all base models = 8002 on" in told.err


def test_dry_run_warns_of_what_does_not_fit(
    calls: list[dict[str, Any]], tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = f'model = {{ path = "{tiny_model}", device = "cpu" }}\nengine = {{ slot_tokens = 1_000_000_000_000 }}\n'
    Path("tasks.toml").write_text(head + "workers = { rollout_threads = 4096 }\n" + TASKS + 'training = "full"\n')
    assert plait("run", "tasks.toml", "--dry-run") == 0
    warnings = capsys.readouterr().err
    assert "warning: the run needs about" in warnings
    assert "rollout_threads + workers.train_threads = 4097" in warnings
    assert "warning: gcd: optimizer.learning_rate = 0.0005 (the default, which is for adapters) is high" in warnings


def test_dry_run_warns_of_what_multiplexed_workers_have_no_room_for(
    calls: list[dict[str, Any]], tiny_model: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    head = f'model = {{ name = "base", path = "{tiny_model}", device = "cpu" }}\n'
    Path("tasks.toml").write_text(head + 'workers = { layout = "multiplexed", device_bytes = 1000 }\n' + TASKS)
    assert plait("run", "tasks.toml", "--dry-run") == 0
    told = capsys.readouterr()
    assert "workers.device_bytes = 1000 has no room for base/rollout" in told.err
    assert "x 3: one laid out for each deployment, one for what is parked" in told.out


def test_gain_needs_both_evaluations_and_enough_questions() -> None:
    events = [evaluation("a", "before", 0.0), evaluation("a", "after", 0.9), evaluation("b", "before", 0.0)]
    events += [evaluation("c", "before", 0.0, 63), evaluation("c", "after", 0.9, 63), evaluation("a", "periodic", 0.2)]
    gains = gains_of(["a", "b", "c"], events)
    assert [is_enough([gain], 0.25) for gain in gains] == [True, False, False]
    assert gains[1] == Gain("b", 0.0, None, 0)
    assert "not measured" in describe_gains(gains, 0.25)


def test_of_a_task_that_failed_the_cause_is_told() -> None:
    failed = TaskStateChanged(time_s=1.0, task="b", state="failed", cause="Traceback\nKeyError: 'x'")
    told = describe_gains(gains_of(["a", "b"], [evaluation("a", "before", 0.0), evaluation("b", "before", 0.0), failed]), None)
    assert told.splitlines() == ["a  held-out accuracy 0.000 -> not measured", "b  failed: KeyError: 'x'"]
    assert gains_of(["b"], [failed])[0].as_dict()["gain"] is None
    assert "held-out accuracy not measured" in describe_gains(gains_of(["a"], []), None)
