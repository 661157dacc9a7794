"""The server's settings: one file, variables over it, every fault with where it came from, and no silent change under old data."""

import tomllib
from pathlib import Path

import pytest

from plait.config.load_server import conflicts, effective_server_toml, load_server_settings
from plait.config.server import ServerSettings
from plait.types.errors import ConfigError


def load(tmp_path: Path, text: str = "", **environment: str) -> ServerSettings:
    file = tmp_path / "server.toml"
    file.write_text(text)
    return load_server_settings(file, environment)


def fault_of(tmp_path: Path, text: str = "", **environment: str) -> str:
    with pytest.raises(ConfigError) as caught:
        load(tmp_path, text, **environment)
    return caught.value.message


def test_defaults_need_neither_file_nor_variable(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    settings = load_server_settings(None, {"HOME": "/x", "PLAIT_HOME": "/y"})
    assert (settings.host, settings.port, settings.lora.alpha) == ("127.0.0.1", 8400, 32.0)
    assert settings.data_folder == tmp_path / "plait-data"
    assert settings.sqlalchemy_url == f"sqlite:///{tmp_path}/plait-data/plait.db"


def test_variables_stand_over_the_file(tmp_path: Path) -> None:
    settings = load(
        tmp_path,
        'port = 1\naliases = ["a"]\n[engine]\nmax_rows = 3\nslot_tokens = 4096\n',
        PLAIT_SERVER__PORT="9000",
        PLAIT_SERVER__ALIASES='["Qwen/Qwen3-8B", "b"]',
        PLAIT_SERVER__ENGINE__MAX_ROWS="5",
        PLAIT_SERVER__MODEL__PATH="123",
        PLAIT_SERVER__DATABASE_URL="postgresql://u:p@h/d",
        PLAIT_SERVER__LORA="{ alpha = 8, max_rank = 16 }",
        PLAIT_SERVER__LORA__MAX_RANK="32",
        PLAIT_SERVER__TRAINING__CHECKPOINT_LAYERS="true",
    )
    assert (settings.port, settings.aliases) == (9000, ("Qwen/Qwen3-8B", "b"))
    assert (settings.engine.max_rows, settings.engine.slot_tokens) == (5, 4096)
    assert settings.model.path == "123"
    assert settings.sqlalchemy_url == settings.database_url == "postgresql://u:p@h/d"
    assert (settings.lora.alpha, settings.lora.max_rank) == (8.0, 32)
    assert settings.training.checkpoint_layers


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("prot = 1", "prot = 1: unknown key; did you mean 'port'?"),
        ("port = '8400'", 'port = "8400": must be a whole number'),
        ("port = 70000", "port = 70000: must be at most 65535"),
        ("lora = { max_ranks = 3 }", "lora.max_ranks = 3: unknown key; did you mean 'max_rank'?"),
        ("max_waiting = 3", "max_waiting = 3: unknown key; it belongs to samples.max_waiting"),
        ("strict_policy = 'strickt'", 'strict_policy = "strickt": allowed are "recorded", "strict"; did you mean "strict"?'),
        ("environments = ['function']", 'environments[0] = "function": allowed are "reasoning_gym", "dataset", "calculator"'),
        ("environments = ['dataset', 'dataset']", 'environments has "dataset" 2 times'),
        ("aliases = ['a b']", 'aliases[0] = "a b": no spaces'),
        ("aliases = ['a', 'a']", 'aliases has "a" 2 times'),
        ("operations = { poll_s = 40 }", "operations.poll_s = 40: must be less than 40"),
        ("operations = { poll_s = nan }", "operations.poll_s = nan: give a finite number"),
        ("sessions = { heartbeat_timeout_s = 9 }", "sessions.heartbeat_timeout_s = 9: must be at least 30"),
        ("quotas = { live_adapters = 0 }", "quotas.live_adapters = 0: must be at least 1"),
        ("quotas = 3", "quotas = 3: must be a table"),
        ("model = { path = './absent' }", 'model.path = "./absent": there is no file or folder'),
        ("engine = { slot_tokens = 512 }", "engine.slot_tokens = 512 cannot hold one sequence of model.max_context_tokens = 1024"),
        ("port = ", "is not TOML"),
    ],
)
def test_fault_in_the_file(tmp_path: Path, text: str, expected: str) -> None:
    message = fault_of(tmp_path, text)
    assert expected in message
    assert "server.toml" in message


@pytest.mark.parametrize(
    ("name", "value", "expected"),
    [
        ("PLAIT_SERVER__PORT", "many", 'port = "many": must be a whole number (from PLAIT_SERVER__PORT)'),
        ("PLAIT_SERVER__PROT", "1", "prot = 1: unknown key; did you mean 'port'? (from PLAIT_SERVER__PROT)"),
        ("PLAIT_SERVER__LORA__ALPHA", "-1", "lora.alpha = -1: must be greater than 0.0 (from PLAIT_SERVER__LORA__ALPHA)"),
        ("PLAIT_SERVER__LORA__ALPHA", "inf", "lora.alpha = inf: give a finite number (from PLAIT_SERVER__LORA__ALPHA)"),
        ("PLAIT_SERVER__LORA", "{ alpha = -1 }", "lora.alpha = -1: must be greater than 0.0 (from PLAIT_SERVER__LORA)"),
        ("PLAIT_SERVER__PORT__X", "1", "PLAIT_SERVER__PORT__X: port is not a table"),
        ("PLAIT_SERVER__MODEL__PATH", "./absent", 'model.path = "./absent": there is no file or folder'),
        ("PLAIT_SERVER__PORT", "1\nhost = 'x'", "port = "),
        ("PLAIT_SERVER_PORT", "1", "PLAIT_SERVER_PORT: unknown variable; did you mean PLAIT_SERVER__PORT?"),
        ("PLAIT_SERVER__", "1", "unknown key"),
    ],
)
def test_fault_in_a_variable(tmp_path: Path, name: str, value: str, expected: str) -> None:
    assert expected in fault_of(tmp_path, "port = 8400\n", **{name: value})


def test_all_faults_at_once_each_with_its_origin(tmp_path: Path) -> None:
    message = fault_of(
        tmp_path, "port = 'x'\n[samples]\nmax_waiting = 0\n", PLAIT_SERVER__HOST="3", PLAIT_SERVER__LORA__MAX_RANK="0"
    )
    assert "server.toml has 3 faults:" in message
    assert f'port = "x": must be a whole number (from {tmp_path}/server.toml)' in message
    assert f"samples.max_waiting = 0: must be at least 1 (from {tmp_path}/server.toml)" in message
    assert "lora.max_rank = 0: must be at least 1 (from PLAIT_SERVER__LORA__MAX_RANK)" in message


def test_unreadable_files(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*absent.toml: No such file"):
        load_server_settings(tmp_path / "absent.toml", {})
    (tmp_path / "latin.toml").write_bytes(b"host = '\xe9'")
    with pytest.raises(ConfigError, match="is not UTF-8"):
        load_server_settings(tmp_path / "latin.toml", {})


def test_paths_are_taken_from_where_they_are_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here, there = tmp_path / "here", tmp_path / "there"
    for folder in (here, there):
        (folder / "base").mkdir(parents=True)
    monkeypatch.chdir(here)
    settings = load(there, 'data_folder = "data"\nmodel = { path = "base" }\n')
    assert (settings.data_folder, settings.model.path) == (there / "data", str(there / "base"))
    settings = load(there, 'data_folder = "data"\n', PLAIT_SERVER__DATA_FOLDER="other", PLAIT_SERVER__MODEL__PATH="base")
    assert (settings.data_folder, settings.model.path) == (here / "other", str(here / "base"))


def test_effective_settings_load_to_themselves(tmp_path: Path) -> None:
    settings = load(tmp_path, 'aliases = ["a/b"]\nquotas = { stored_bytes = 5 }\ndatabase_url = "sqlite:////x/y.db"\n')
    assert load(tmp_path, effective_server_toml(settings)) == settings


def test_no_password_is_written_down(tmp_path: Path) -> None:
    for url in ("postgresql://ann:se:cr@et@host:5432/name?x=1", "postgresql://ann:secret@/name?host=/tmp/x"):
        settings = load(tmp_path, f'database_url = "{url}"\n')
        text = effective_server_toml(settings)
        assert "se:cr" not in text
        assert "secret" not in text
        assert tomllib.loads(text)["database_url"].startswith("postgresql://ann:***@")
        assert settings.sqlalchemy_url == url


def test_conflicts(tmp_path: Path) -> None:
    old = effective_server_toml(load(tmp_path, 'database_url = "postgresql://a:old@h/d"'))
    same = load(tmp_path, 'port = 1\ndatabase_url = "postgresql://a:new@h/d"\nlora = { max_rank = 256 }\n[engine]\nmax_rows = 2\n')
    assert conflicts(old, same) == []
    (tmp_path / "base").mkdir()
    other = load(tmp_path, 'model = { path = "base", dtype = "float32" }\nlora = { alpha = 16, max_rank = 64 }\n')
    assert conflicts(old, other) == [
        f'model.path: was "smollm2-135m-instruct", is "{tmp_path}/base"',
        'model.dtype: was "bfloat16", is "float32"',
        "lora.alpha: was 32.0, is 16.0",
        'database_url: was "postgresql://a:***@h/d", is ""',
        "lora.max_rank: was 128, is 64: adapters of a higher rank may exist",
    ]


def test_settings_of_an_older_server_may_lack_keys(tmp_path: Path) -> None:
    assert conflicts("port = 3\nforgotten = 4\n", load(tmp_path)) == []
