"""Several base models in a settings file: of a run and of a server."""

from pathlib import Path
from typing import Any

import pytest

from plait.config.explain import combine, estimate_run
from plait.config.load import effective_toml, parse_settings
from plait.config.load_server import conflicts, effective_server_toml, load_server_settings
from plait.config.run import RunSettings
from plait.config.server import ServerSettings
from plait.types.errors import ConfigError
from tests.config.test_explain import SMOLLM2

HERE = Path("/nowhere")
TASK = '[[tasks]]\nname = "{name}"\nenvironment = {{ kind = "calculator" }}\n{more}\n'
SMALL = '[[models]]\nname = "small"\npath = "org/small"\n'


def run(text: str = "", *tasks: str) -> RunSettings:
    listed = tasks or ("", 'model = "small"')
    return parse_settings(text + "".join(TASK.format(name=f"t{n}", more=more) for n, more in enumerate(listed)), HERE)


def fault(text: str, *tasks: str) -> str:
    with pytest.raises(ConfigError) as caught:
        run(text, *tasks)
    return str(caught.value)


def test_a_task_names_its_base_model_and_gets_its_workers_and_engine() -> None:
    own = 'dtype = "float32"\nworkers = { rollout_engines = 2 }\nengine = { max_rows = 3 }\n'
    settings = run(f"[workers]\nenvironment_processes = 5\nmax_restarts = 9\n{SMALL}{own}")
    assert settings.model_names == settings.used_models == ("smollm2-135m-instruct", "small")
    first, small = (settings.of_model(name) for name in settings.model_names)
    assert ([t.name for t in first.tasks], [t.name for t in small.tasks]) == (["t0"], ["t1"])
    assert (first.model, first.workers, first.models) == (settings.model, settings.workers, ())
    assert (small.model.path, small.model.dtype, small.model.known_as, small.engine.max_rows) == (
        "org/small",
        "float32",
        "small",
        3,
    )
    assert (small.workers.rollout_engines, small.workers.environment_processes, small.workers.max_restarts) == (2, 5, 3)
    assert run(f"[workers]\nmax_restarts = 9\n{SMALL}").of_model("small").workers.max_restarts == 9


def test_the_first_model_may_have_a_name_and_need_not_be_used() -> None:
    settings = run(f'[model]\nname = "first"\n{SMALL}', 'model = "small"')
    assert (settings.model_names, settings.used_models) == (("first", "small"), ("small",))
    assert run('[model]\nname = "first"\n', 'model = "first"').used_models == ("first",)


def test_effective_settings_load_to_themselves() -> None:
    settings = run(SMALL + "workers = { train_workers = 2 }\n")
    assert parse_settings(effective_toml(settings), HERE) == settings


def test_a_local_first_model_is_named_by_its_path_as_it_stands_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "base").mkdir()
    text = '[model]\npath = "./base"\n' + TASK.format(name="a", more='model = "./base"')
    settings = parse_settings(text, tmp_path)
    assert settings.used_models == (str(tmp_path / "base"),)
    assert parse_settings(effective_toml(settings), tmp_path) == settings


@pytest.mark.parametrize(
    ("text", "tasks", "expected"),
    [
        (
            SMALL, ('model = "smal"', 'model = "small"'),
            'tasks[0] (name "t0").model = "smal" is no base model of this run; did you mean "small"?',
        ),
        (
            SMALL, ('model = "xyz"', 'model = "small"'),
            'model = "xyz" is no base model of this run: there is smollm2-135m-instruct, small',
        ),
        (SMALL, ("",), 'models[0] (name "small") is trained by no task: remove it'),
        (SMALL + SMALL, ('model = "small"',), "base models share the name 'small': give each its own"),
        ('[model]\nname = "small"\n' + SMALL, ('model = "small"',), "base models share the name 'small'"),
        ('[[models]]\npath = "x"\n', ("",), "models[0].name is missing: By which tasks and clients name it"),
        (SMALL + "engin = { }\n", ('model = "small"',), "unknown key; did you mean 'engine'?"),
        (
            SMALL + "workers = { environment_processes = 2 }\n", ('model = "small"',),
            'models[0] (name "small").workers.environment_processes = 2: unknown key',
        ),
        (
            SMALL + 'workers = { layout = "shared", train_workers = 2 }\n', ('model = "small"',),
            'models[0] (name "small").workers.train_workers = 2 needs processes of their own',
        ),
        (
            SMALL + "max_context_tokens = 4096\nengine = { slot_tokens = 2048 }\n", ('model = "small"',),
            'models[0] (name "small").engine.slot_tokens = 2048 cannot hold one sequence of models[0] (name "small").max_context',
        ),
        (SMALL + "max_context_tokens = 32\n", ('model = "small"',), "leaves no room for a prompt in model.max_context_tokens = 32"),
        ('[[models]]\nname = "small"\npath = "./absent"\n', ('model = "small"',), 'models[0] (name "small").path = "./absent"'),
        ('workers = { layout = "shared", train_workers = 2 }\n', ("",), 'workers.train_workers = 2 needs processes of their own'),
    ],
)  # fmt: skip
def test_faults(text: str, tasks: tuple[str, ...], expected: str) -> None:
    assert expected in fault(text, *tasks)


def test_needs_of_all_base_models_are_told() -> None:
    settings = run(SMALL + "workers = { train_workers = 2 }\n")
    parts = {name: estimate_run(settings.of_model(name), SMOLLM2) for name in settings.used_models}
    whole = combine(parts)
    assert whole.memory_bytes == sum(part.memory_bytes for part in parts.values())
    assert {sizes.task for sizes in whole.tasks} == {"t0", "t1"}
    copies = {need.derivation.partition(":")[0]: need.size_bytes for need in whole.memory if need.name == "model"}
    assert copies["small"] * 2 == copies["smollm2-135m-instruct"] * 3
    assert whole.time_s == max(part.time_s or 0.0 for part in parts.values())


# ---- the server


def server(folder: Path, text: str, **variables: str) -> ServerSettings:
    file = folder / "server.toml"
    file.write_text(text)
    return load_server_settings(file, variables)


TWO = 'aliases = ["A"]\n[model]\nname = "first"\n[[models]]\nname = "small"\npath = "org/small"\naliases = ["B", "C"]\n'


def test_served_models_have_aliases_and_settings_of_their_own(tmp_path: Path) -> None:
    settings = server(tmp_path, TWO + "workers = { train_workers = 3 }\n")
    assert settings.model_names == (("first", "A"), ("small", "B", "C"))
    small = settings.of_model("small")
    assert (small.model_names, small.workers.train_workers, small.lora) == ((("small", "B", "C"),), 3, settings.lora)
    assert settings.of_model("first").model_names == (("first", "A"),)
    assert server(tmp_path, effective_server_toml(settings)) == settings
    variable = '[{ name = "other", path = "x" }]'
    assert server(tmp_path, "", PLAIT_SERVER__MODELS=variable).models[0].name == "other"
    with pytest.raises(ConfigError, match="base models share the name 'A'"):
        server(tmp_path, TWO.replace('"B"', '"A"'))


@pytest.mark.parametrize(
    ("changes", "expected"),
    [
        ({}, []),
        ({'"B", "C"': '"B", "C", "D"'}, []),
        ({'path = "org/small"': 'path = "org/large"'}, ["small", "B", "C"]),
        ({'"B", "C"': '"B"'}, ["C"]),
        ({'["A"]': '["A", "C"]', '"B", "C"': '"B"'}, ["C"]),
        ({TWO[TWO.index("[[models]]") :]: ""}, ["small", "B", "C"]),
    ],
)
def test_a_name_must_go_on_to_mean_the_same_weights(tmp_path: Path, changes: dict[str, str], expected: list[str]) -> None:
    text: Any = TWO
    for old, new in changes.items():
        text = text.replace(old, new)
    lines = conflicts(effective_server_toml(server(tmp_path, TWO)), server(tmp_path, text))
    assert [line.split('"')[1] for line in lines] == expected


def test_base_models_may_be_added_and_the_first_ones_change_is_told_once(tmp_path: Path) -> None:
    one = effective_server_toml(server(tmp_path, 'aliases = ["A"]\n[model]\nname = "first"\n'))
    assert conflicts(one, server(tmp_path, TWO)) == []
    assert conflicts(one, server(tmp_path, '[model]\nname = "renamed"\n')) == []
    changed = server(tmp_path, TWO.replace('name = "first"', 'name = "first"\ndtype = "float32"'))
    assert conflicts(one, changed) == ['model.dtype: was "bfloat16", is "float32"']
