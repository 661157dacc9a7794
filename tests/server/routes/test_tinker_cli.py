"""The SDK's own command line, unmodified, against a real server. (`push-hf` asks the Hugging Face Hub before it asks us.)"""

import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from click.testing import CliRunner
from safetensors.numpy import load_file
from tinker.cli.__main__ import main_cli
from tinker.cli.exceptions import TinkerCliError

from tests.server.routes.owner import Owner, make_owner, rest
from tests.server.server_process import ServerProcess

Cli = Callable[..., str]


@pytest.fixture(scope="module")
def owner(_session_server: ServerProcess) -> Owner:
    return make_owner(_session_server)


@pytest.fixture
def tinker_cli(server: ServerProcess, owner: Owner, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Cli:
    """What a command prints, its error included; it must end with `code`. `key=None`: the stored one."""
    monkeypatch.chdir(tmp_path)

    def call(*arguments: str, code: int = 0, key: str | None = owner.key, text: str | None = None) -> str:
        env = {"TINKER_BASE_URL": server.url, "TINKER_API_KEY": key, "HOME": str(tmp_path), "COLUMNS": "400"}
        result = CliRunner().invoke(main_cli, list(arguments), env=env, input=text)
        error = result.exception
        told = f"{error.message} {error.details}" if isinstance(error, TinkerCliError) else ""
        assert result.exit_code == code, (result.output, told, error)
        return result.stdout if code == 0 else f"{result.output}{told}"

    return call


def test_lists(tinker_cli: Cli, server: ServerProcess, owner: Owner) -> None:
    runs = json.loads(tinker_cli("-f", "json", "run", "list"))["runs"]
    assert [run["training_run_id"] for run in runs] == [owner.run_id]
    assert owner.run_id in tinker_cli("run", "list")
    assert owner.run_id in tinker_cli("run", "info", owner.run_id)
    for limits in ((), ("--limit", "0"), ("--run-id", owner.run_id)):
        assert owner.training in tinker_cli("checkpoint", "list", *limits)
    assert "2 more not shown" in tinker_cli("checkpoint", "list", "--limit", "1")
    assert json.loads(tinker_cli("-f", "json", "checkpoint", "info", owner.training))["lora_rank"] == 4
    assert server.models[0] in tinker_cli("model", "list")


def test_changes_of_a_checkpoint(tinker_cli: Cli, server: ServerProcess, owner: Owner) -> None:
    tinker_cli("checkpoint", "publish", owner.training)
    assert "Yes" in tinker_cli("checkpoint", "info", owner.training)
    tinker_cli("checkpoint", "unpublish", owner.training)
    tinker_cli("checkpoint", "set-ttl", owner.training, "--ttl", "7200")
    assert "Never" not in tinker_cli("checkpoint", "info", owner.training)
    tinker_cli("checkpoint", "set-ttl", owner.training, "--remove")
    assert "Never" in tinker_cli("checkpoint", "info", owner.training)


def test_download_of_a_training_checkpoint(tinker_cli: Cli, server: ServerProcess, owner: Owner, tmp_path: Path) -> None:
    before = rest(server, owner.key).list_user_checkpoints().result().checkpoints
    tinker_cli("checkpoint", "download", owner.training, "-o", "there")
    folder = tmp_path / "there" / f"{owner.run_id}_weights_first"
    assert json.loads((folder / "adapter_config.json").read_text())["r"] == 4
    exported = tmp_path / "there" / f"{owner.run_id}_external_weights_first"
    tinker_cli("-f", "json", "checkpoint", "download", owner.external, "-o", "there")
    first, second = (load_file(path / "adapter_model.safetensors") for path in (folder, exported))
    assert first.keys() == second.keys()
    assert all((first[name] == second[name]).all() for name in first)
    assert rest(server, owner.key).list_user_checkpoints().result().checkpoints == before
    tinker_cli("checkpoint", "download", owner.sampler, code=1)


def test_deletion(tinker_cli: Cli, server: ServerProcess, owner: Owner) -> None:
    copies = [rest(server, owner.key).copy_weights(path, "copies").result() for path in (owner.training, owner.sampler)]
    tinker_cli("checkpoint", "delete", copies[0], "--yes")
    run_id = copies[1].split("/")[2]
    assert "No checkpoints found" in tinker_cli("checkpoint", "delete", "--run-id", run_id, "--type", "weights", "--yes")
    assert '"deleted_count": 1' in tinker_cli("-f", "json", "checkpoint", "delete", "--run-id", run_id, "--yes")
    assert "Failed to delete 1" in tinker_cli("checkpoint", "delete", copies[0], "--yes")
    assert "not found" in tinker_cli("checkpoint", "info", copies[0], code=1).lower()


def test_billing(tinker_cli: Cli, owner: Owner) -> None:
    start = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) - timedelta(hours=1)
    end = start + timedelta(hours=3)
    assert "training" in tinker_cli("billing", "usage", start.isoformat(), end.isoformat())
    assert "event_info" in tinker_cli("-f", "json", "billing", "usage", start.isoformat(), end.isoformat())
    assert "training" in tinker_cli("billing", "usage", start.isoformat(), end.isoformat(), "--csv", "-")
    assert "first" in tinker_cli("billing", "checkpoint-storage")


def test_session_and_identity(tinker_cli: Cli, owner: Owner) -> None:
    assert "not kept here" in tinker_cli("session", "export-trace", owner.session_id, code=1)
    assert "JWT" in tinker_cli("auth", "whoami", code=1)
    assert "Tinker accessible: yes" in tinker_cli("auth", "status")


def test_login_and_logout(tinker_cli: Cli, owner: Owner) -> None:
    said = tinker_cli("auth", "login", key=None, text=f"{owner.key}\n")
    assert f"Logged in as {owner.tenant_id} ({owner.tenant_id}). Stored API key 'for a test'" in said
    assert owner.run_id in tinker_cli("run", "list", key=None)
    assert "Removed credential" in tinker_cli("auth", "logout", key=None)
    assert "unknown or revoked" in tinker_cli("auth", "login", key=None, text=f"{owner.key}x\n", code=1)
