"""What a task file over HTTP may say, and what is refused, by its key."""

import ast
import inspect
from pathlib import Path
from typing import Any

import pytest

from plait.config.checks import check_deployments
from plait.config.run import ModelSettings
from plait.config.server import ServerFullSettings, ServerLoraSettings, ServerSettings
from plait.server.managed.evaluating_tasks import EVALUATING_TASKS
from plait.server.managed.submission import Submission, read_submission, with_files
from plait.types.errors import ConfigError
from plait.types.python_syntax import parse_module
from tests.server.managed.task_files import task, task_file

SERVER = ServerSettings(
    aliases=("Qwen/Qwen3-8B",), model=ModelSettings(max_context_tokens=512), lora=ServerLoraSettings(max_rank=16)
)


MORE = {"name": "b", "path": "b"}


def read(text: str, **changes: Any) -> Submission:
    return read_submission(text, SERVER.model_copy(update=changes))


def problem(text: str, **changes: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        read(text, **changes)
    return str(caught.value)


def dataset(**keys: Any) -> dict[str, Any]:
    return task("a", environment={"kind": "dataset", **keys})


def test_the_servers_sections_hold() -> None:
    settings = read(task_file(task("a"), task("b"))).settings
    assert (settings.name, settings.seed, [t.name for t in settings.tasks]) == ("words", 5, ["a", "b"])
    assert (settings.model, settings.engine, settings.workers) == (SERVER.model, SERVER.engine, SERVER.workers)


@pytest.mark.parametrize(
    "sections",
    [
        {"workers": {"train_ranks": 2}, "full": {"max_resident": 1}},
        {"workers": {"layout": "multiplexed", "device_bytes": 10**9, "groups": 2, "placement": "pack"}, "models": [MORE]},
        {"workers": {"layout": "multiplexed", "device_bytes": 10**9, "host_bytes": 10**9, "disk_bytes": 10**9}},
        {"workers": {"executor": "ray", "ray_placement": "spread"}, "models": [MORE]},
    ],
)
def test_a_file_need_not_use_all_that_the_server_has(sections: dict[str, Any]) -> None:
    """How its workers fit together is the operator's to say, and was checked when it started."""
    server = ServerSettings.model_validate({**sections, "model": {"path": "a", "max_context_tokens": 512}})
    assert not list(check_deployments(server, server.models))
    settings = read_submission(task_file(task("a")), server).settings
    assert (settings.workers, settings.models) == (server.workers, ())


def test_the_model_may_be_named_if_it_is_the_servers() -> None:
    assert read(task_file(task("a"), model={"path": "Qwen/Qwen3-8B"})).settings.model == SERVER.model
    assert "model.path" in problem(task_file(task("a"), model={"path": "/etc"}))


@pytest.mark.parametrize("section", ["engine", "workers", "training", "tracking", "state"])
def test_other_sections_are_refused_by_name(section: str) -> None:
    assert f"{section}: this is the server's" in problem(task_file(task("a"), **{section: {}}))
    assert "model: this is" in problem(task_file(task("a"), model={"dtype": "float32"}))
    assert "colour: unknown key" in problem(task_file(task("a"), colour="red"))


@pytest.mark.parametrize("path", ["/etc/passwd", "data.jsonl", "../x.jsonl", "openai/gsm8k", "~/x", "", "Upload:x"])
@pytest.mark.parametrize("key", ["path", "evaluation_path"])
def test_paths_and_hub_ids_are_refused_by_key(path: str, key: str) -> None:
    told = problem(task_file(dataset(**({"path": "upload:mine"} | {key: path}))))
    assert f'tasks[0].environment.{key} = "{path}"' in told
    assert "there is no file" not in told


def test_code_is_refused() -> None:
    function = task("a", environment={"kind": "function", "function": "os:system", "examples": "os:getcwd"})
    told = problem(task_file(task("b"), function))
    assert 'tasks[1].environment.kind = "function"' in told
    assert "tasks[1].environment.function: code" in told
    assert "tasks[1].environment.examples: code" in told


def test_only_registered_kinds_are_taken() -> None:
    text = task_file(task("a", environment={"kind": "calculator"}))
    assert read(text).settings.tasks[0].environment.kind == "calculator"
    assert 'kind = "calculator"' in problem(text, environments=("dataset",))


def test_uploads_are_found_and_replaced_by_their_files() -> None:
    submission = read(task_file(dataset(path="upload:x.jsonl", evaluation_path="upload:y"), task("b")))
    assert submission.uploads == ("x.jsonl", "y")
    environment = with_files(submission.settings.tasks[0].environment, {"x.jsonl": "/data/1", "y": "/data/2"})
    assert (getattr(environment, "path"), getattr(environment, "evaluation_path")) == ("/data/1", "/data/2")  # noqa: B009


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"lora": {"rank": 32}}, "lora.rank = 32"),
        ({"groups_per_step": 10**9}, "groups_per_step x group_size"),
        ({"evaluation": {"questions": 10**6}}, "evaluation.questions"),
        ({"warm_start": {"steps": 1, "examples_per_step": 10**6}}, "warm_start.examples_per_step"),
        ({"sampling": {"max_new_tokens": 512}}, "max_new_tokens"),
        ({"stps": 3}, "stps"),
    ],
)
def test_what_the_server_cannot_hold_is_refused(changes: dict[str, Any], key: str) -> None:
    assert key in problem(task_file(task("a", **changes)))


@pytest.mark.parametrize(
    "text", ["", "tasks = 3", "tasks = [3]", "x", "[[tasks]]\nenvironment = 3", "a = " + "[" * 5000, "a = " + "9" * 5000]
)
def test_nonsense_is_refused(text: str) -> None:
    problem(text)


def test_no_task_runs_answers_as_python() -> None:
    """All of reasoning-gym whose source runs strings as Python, less those that were read: they run only what they made."""
    from reasoning_gym.factory import DATASETS

    runs_own_strings = {"basic_arithmetic", "bitwise_arithmetic", "number_sorting", "codeio", "propositional_logic", "gsm_symbolic"}
    running = {name for name, (kind, _) in DATASETS.items() if _runs_strings(Path(inspect.getfile(kind)))}
    assert running - runs_own_strings == EVALUATING_TASKS - {"composite"}
    for name in EVALUATING_TASKS:
        environment = {"kind": "reasoning_gym", "name": name}
        assert f'name = "{name}"' in problem(task_file(task("a", environment=environment)))


def _runs_strings(file: Path) -> bool:
    calls = [node.func for node in ast.walk(parse_module(file.read_text())) if isinstance(node, ast.Call)]
    names = {call.attr if isinstance(call, ast.Attribute) else getattr(call, "id", "") for call in calls}
    return bool(names & {"eval", "exec", "parse_expr", "sympify"})


def test_tasks_that_train_all_weights_are_limited() -> None:
    tasks = [{key: value for key, value in task(name, training="full").items() if key != "lora"} for name in "ab"]
    one, two = task_file(tasks[0]), task_file(*tasks)
    assert read(one).settings.tasks[0].training == "full"
    assert '2 with training = "full" (a, b); this server takes 1 in one file' in problem(two)
    assert "this server takes 0" in problem(one, full=ServerFullSettings(max_resident=0))
