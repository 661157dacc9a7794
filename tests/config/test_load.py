"""A faulty file is refused in one go, with the key, the value and what is allowed; a good one survives a round trip."""

import subprocess
import sys
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.config.load import effective_toml, load_settings, parse_settings, with_name
from plait.config.run import RunSettings
from plait.types.errors import ConfigError

TASK = """
[[tasks]]
name = "add"
environment = { kind = "calculator" }
"""


def parse(text: str, folder: Path = Path("/nowhere")) -> RunSettings:
    return parse_settings(text, folder)


def fault_of(text: str) -> str:
    with pytest.raises(ConfigError) as caught:
        parse(text)
    return caught.value.message


def test_defaults_and_types() -> None:
    settings = parse(TASK + "optimizer = { learning_rate = 1 }\nlora = { target_modules = ['q_proj'] }\n")
    task = settings.tasks[0]
    assert task.optimizer.learning_rate == 1.0
    assert isinstance(task.optimizer.learning_rate, float)
    assert task.lora.target_modules == ("q_proj",)
    assert task.group_size == 8


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("optimizer = { learning_rate = '1e-3' }", 'tasks[0] (name "add").optimizer.learning_rate = "1e-3": must be a number'),
        ("optimizer = { learning_rate = 0 }", "optimizer.learning_rate = 0: must be greater than 0"),
        ("optimizer = { learning_rate = nan }", "optimizer.learning_rate = nan: give a finite number"),
        ("optimizer = { learning_rate = inf }", "optimizer.learning_rate = inf: give a finite number"),
        ("optimizer = { learning_rat = 1e-3 }", "optimizer.learning_rat = 0.001: unknown key; did you mean 'learning_rate'?"),
        ("optimizer = { lr = 1e-3 }", "here it is: optimizer.learning_rate"),
        ("learning_rate = 1e-3", "it belongs to tasks.optimizer.learning_rate or tasks.warm_start.learning_rate"),
        ("lerning_rate = 1e-3", "did you mean tasks.optimizer.learning_rate or tasks.warm_start.learning_rate?"),
        ("batch_size = 64", "a step has groups_per_step x group_size trajectories"),
        ("quux = 1", "unknown key; known here: advantage, early_stopping, environment"),
        ("group_size = true", 'tasks[0] (name "add").group_size = true: must be a whole number'),
        ("group_size = 2.5", "group_size = 2.5: must be a whole number"),
        ("group_size = 1", "advantage 'group_standardised' needs group_size >= 2, not 1"),
        ("lora = { rank = 513 }", "lora.rank = 513: must be at most 512"),
        ("lora = { target_modules = ['q_prj'] }", '.lora.target_modules[0] = "q_prj": allowed are "q_proj", "k_proj"'),
        ("lora = { target_modules = ['q_prj'] }", 'did you mean "q_proj"?'),
        ("lora = { target_modules = 'q_proj' }", "must be a list, in [ ]"),
        ("lora = { target_modules = [] }", "nothing would be trained"),
        ("lora = { target_modules = ['q_proj', 'q_proj'] }", '"q_proj" 2 times'),
        ("lora = 3", "lora = 3: must be a table"),
        ("loss = { kind = 'dro', clip_low = 0.8 }", "clip_low has no effect on loss 'dro'"),
        ("loss = { kind = 'ppo', clip_low = 1.2, clip_high = 0.8 }", "loss.clip_low = 1.2 must be below clip_high = 0.8"),
        ("early_stopping = { target = 0.9 }", "early_stopping needs evaluation.every_steps >= 1, not 0"),
        ("early_stopping = {}\nevaluation = { every_steps = 2 }", "has neither target nor patience_evaluations"),
        ("early_stopping = { target = 1 }\nevaluation = { every_steps = 2, questions = 0 }", "evaluation.questions = 0"),
        ("early_stopping = { target = 1 }\nevaluation = { every_steps = 21 }", "every_steps = 21 is above steps = 20"),
        ("early_stopping = { target = 1, min_gain = 0.1 }\nevaluation = { every_steps = 2 }", "min_gain = 0.1 has no effect"),
        ("optimizer = { warmup_steps = 21 }", "optimizer.warmup_steps = 21 is more than steps = 20"),
        (
            "sampling = { max_new_tokens = 512 }",
            "512 x 2 turns = 1024 leaves no room for a prompt in model.max_context_tokens = 1024",
        ),
        ("name = 'a b'", "is not TOML"),
    ],
)
def test_fault_in_a_task(line: str, expected: str) -> None:
    assert expected in fault_of(TASK + line)


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        (
            "{ kind = 'calculatr' }",
            '.environment.kind = "calculatr": allowed are "reasoning_gym", "dataset", "function", "calculator"',
        ),
        ("{ kind = 'calculatr' }", 'did you mean "calculator"?'),
        ("{}", ".environment.kind is missing: allowed are"),
        ("3", ".environment = 3: must be a table"),
        ("{ kind = 'reasoning_gym' }", ".environment.name is missing: The data set's name in reasoning-gym"),
        ("{ kind = 'function' }", ".environment.function is missing"),
        ("{ kind = 'function', function = 'reward' }", '.environment.function = "reward": must be "module:name" or "file.py:name"'),
        ("{ kind = 'function', function = 'no.py:reward' }", "there is no file or folder"),
        ("{ kind = 'dataset', path = 'no.jsonl' }", "no.jsonl"),
        ("{ kind = 'calculator', max_vale = 3 }", "did you mean 'max_value'?"),
        ("{ kind = 'calculator', min_value = 5, max_value = 4 }", ".environment.min_value = 5 is above max_value = 4"),
        ("{ kind = 'calculator', operations = ['/'] }", '.environment.operations[0] = "/": allowed are "+", "-", "*"'),
        ("{ kind = 'calculator', operations = [] }", "name at least one"),
        ("{ kind = 'calculator', delay = { mean_s = 2 } }", "has no effect with delay.kind"),
        ("{ kind = 'calculator', delay = { kind = 'fixed' } }", "needs delay.mean_s above 0"),
        (
            "{ kind = 'calculator', delay = { kind = 'fixed', mean = 2 } }",
            "environment.delay.mean = 2: unknown key; did you mean 'mean_s'?",
        ),
    ],
)
def test_fault_in_an_environment(environment: str, expected: str) -> None:
    assert expected in fault_of(f"[[tasks]]\nname = 'add'\nenvironment = {environment}\n")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "tasks is missing: there must be one [[tasks]] at least"),
        ("[tasks]\nname = 'a'", "tasks is one table: write each under [[tasks]], with two brackets"),
        ("[[tasks]]\nname = 'a'", "environment is missing: give a table with one of the kinds reasoning_gym, dataset"),
        ("tasks = []", "tasks = []: needs at least 1"),
        (TASK + TASK, "tasks share the name 'add'"),
        ("nam = 'x'\n" + TASK, "nam = \"x\": unknown key; did you mean 'name'?"),
        ("name = '../x'\n" + TASK, 'name = "../x": at most 64 letters, digits, dots'),
        ("engine = { batch_invariant = 'on' }\n" + TASK, 'engine.batch_invariant = "on": allowed are "auto", "require", "off"'),
        ("model = { max_context_tokens = 4096 }\n" + TASK, "training.micro_batch_tokens = 2048 cannot hold one sequence of"),
        (
            "engine = { slot_tokens = 512 }\n" + TASK,
            "engine.slot_tokens = 512 cannot hold one sequence of model.max_context_tokens = 1024",
        ),
        ("model = { path = './absent' }\n" + TASK, 'model.path = "./absent": there is no file or folder'),
    ],
)
def test_fault_in_the_run(text: str, expected: str) -> None:
    assert expected in fault_of(text)


def test_all_faults_at_once() -> None:
    text = "seed = 'x'\n" + TASK + "optimizer = { lr = 1, beta1 = 2 }\n[[tasks]]\nenvironment = { kind = 'x' }\n"
    with pytest.raises(ConfigError) as caught:
        parse_settings(text, Path("/nowhere"), "my.toml")
    assert caught.value.message.startswith("my.toml has 5 faults:")
    for part in ("seed", "optimizer.lr", "optimizer.beta1", "tasks[1].name is missing", "tasks[1].environment.kind"):
        assert part in caught.value.message


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*absent.toml: No such file"):
        load_settings(tmp_path / "absent.toml")
    (tmp_path / "latin.toml").write_bytes(b"name = '\xe9'")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load_settings(tmp_path / "latin.toml")
    (tmp_path / "torn.toml").write_text("[model")
    with pytest.raises(ConfigError, match="is not TOML"):
        load_settings(tmp_path / "torn.toml")


def test_paths_are_taken_from_the_files_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "base").mkdir()
    for name in ("questions.jsonl", "held.jsonl", "reward.py"):
        (tmp_path / name).write_text("")
    (tmp_path / "run.toml").write_text(
        """
model = { path = "base" }
[[tasks]]
name = "a"
environment = { kind = "dataset", path = "questions.jsonl", evaluation_path = "held.jsonl" }
[[tasks]]
name = "b"
environment = { kind = "function", function = "reward.py:score", examples = "package.module:make" }
[[tasks]]
name = "c"
environment = { kind = "dataset", path = "openai/gsm8k" }
"""
    )
    monkeypatch.chdir(tmp_path.parent)
    settings = load_settings(Path(tmp_path.name) / "run.toml")
    data, function, hub = (task.environment.model_dump() for task in settings.tasks)
    assert settings.model.path == str(tmp_path / "base")
    assert (data["path"], data["evaluation_path"]) == (str(tmp_path / "questions.jsonl"), str(tmp_path / "held.jsonl"))
    assert (function["function"], function["examples"]) == (f"{tmp_path / 'reward.py'}:score", "package.module:make")
    assert hub["path"] == "openai/gsm8k"
    assert parse(effective_toml(settings)) == settings


names = st.from_regex(r"[A-Za-z0-9][A-Za-z0-9_-]{0,20}", fullmatch=True)
texts = st.text(st.characters(codec="utf-8", exclude_characters="\x00"), max_size=20)
tasks = st.fixed_dictionaries(
    {
        "name": names,
        "environment": st.just({"kind": "reasoning_gym", "name": "gcd", "options": {"max": [1, 2.5, "x"], "on": True}}),
    },
    optional={
        "steps": st.integers(1, 1000),
        "optimizer": st.fixed_dictionaries({"learning_rate": st.floats(1e-12, 1e3), "weight_decay": st.floats(0, 1)}),
        "sampling": st.fixed_dictionaries({"stop_strings": st.lists(texts, max_size=3)}),
        "loss": st.fixed_dictionaries({"kind": st.just("cispo"), "clip_high": st.floats(1, 9)}),
        "evaluation": st.fixed_dictionaries({"every_steps": st.integers(0, 9)}),
    },
)


@given(st.fixed_dictionaries({"name": names, "seed": st.integers(0, 2**40), "tasks": st.lists(tasks, min_size=1, max_size=3)}))
def test_effective_settings_load_to_themselves(data: dict) -> None:
    for index, task in enumerate(data["tasks"]):
        task["name"] += str(index)
    settings = RunSettings.model_validate(data)
    assert parse(effective_toml(settings)) == settings


def test_name_from_outside_is_checked() -> None:
    settings = parse(TASK)
    assert with_name(settings, "other").name == "other"
    with pytest.raises(ConfigError, match="letters, digits"):
        with_name(settings, "../up")


def test_config_is_importable_without_torch() -> None:
    code = "import sys, plait.config.load, plait.config.explain; assert not {'torch', 'numpy'} & set(sys.modules)"
    subprocess.run([sys.executable, "-c", code], check=True)


FULL = TASK + 'training = "full"\n'


def test_a_task_that_trains_all_weights_has_no_adapter() -> None:
    settings = parse(FULL + "[[tasks]]\nname = 'b'\nenvironment = { kind = 'calculator' }")
    assert [task.training for task in settings.tasks] == ["full", "lora"]
    written = effective_toml(settings)
    assert written.count("[tasks.lora]") == 1
    assert parse(written) == settings
    assert "lora.alpha, lora.rank has no effect: remove it" in fault_of(FULL + "lora = { rank = 8, alpha = 4.0 }")
    assert 'training = "some"' in fault_of(TASK + 'training = "some"').replace("'", '"')


def test_a_question_ends_with_its_own_mark() -> None:
    assert fault_of(TASK + "stepss = 2\n").endswith("did you mean 'steps'?")
