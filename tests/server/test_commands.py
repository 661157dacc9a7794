"""`plait keys --url`, `plait checkpoints` and `plait usage` against a server that runs."""

import json
from pathlib import Path
from typing import Any

import pytest
import tinker
from safetensors import safe_open

from plait.cli.main import main
from plait.cli.serve import snippet


@pytest.fixture
def owner(server: Any, monkeypatch: pytest.MonkeyPatch) -> Any:
    """A tenant whose key and server the commands find in the SDK's variables."""
    tenant = server.tenant()
    monkeypatch.setenv("TINKER_BASE_URL", server.url)
    monkeypatch.setenv("TINKER_API_KEY", tenant.key)
    monkeypatch.delenv("PLAIT_URL", raising=False)
    monkeypatch.delenv("PLAIT_API_KEY", raising=False)
    return tenant


@pytest.fixture
def saved(server: Any, owner: Any) -> tuple[str, str]:
    """Paths of a training and of a sampler checkpoint."""
    training = server.client_for(owner.key).create_lora_training_client(base_model=server.models[0], rank=2).result()
    state = training.save_state("one").result().path
    return state, training.save_weights_for_sampler("two").result().path


def plait(*arguments: str) -> object:
    with pytest.raises(SystemExit) as caught:
        main(list(arguments))
    return caught.value.code


def answer_of(capsys: pytest.CaptureFixture[str], *arguments: str) -> Any:
    assert plait(*arguments, "--json") == 0
    return json.loads(capsys.readouterr().out)


def test_checkpoints_are_listed_shown_and_deleted(
    server: Any, saved: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state, sampler = saved
    model = state.removeprefix("tinker://").partition("/")[0]
    assert [row["tinker_path"] for row in answer_of(capsys, "checkpoints", "list")] == [sampler, state]
    assert len(answer_of(capsys, "checkpoints", "list", "--model", model)) == 2
    assert plait("checkpoints", "list") == 0
    assert state in capsys.readouterr().out
    shown = answer_of(capsys, "checkpoints", "show", state)
    assert (shown["lora_rank"], shown["checkpoint_type"], shown["base_model"]) == (2, "training", server.models[0])
    assert {file["name"] for file in shown["files"]} >= {"adapter_model.safetensors", "adapter_config.json"}
    assert plait("checkpoints", "show", state) == 0
    assert "adapter_config.json" in capsys.readouterr().out
    monkeypatch.setenv("TINKER_API_KEY", server.tenant().key)
    for command in ("show", "delete"):
        assert plait("checkpoints", command, state, *(["--yes"] if command == "delete" else [])) == 2
        assert "there is no checkpoint" in capsys.readouterr().err
    monkeypatch.setenv("TINKER_API_KEY", server.admin.key)
    assert answer_of(capsys, "usage")["stored_bytes"]


def test_deleting_is_asked_for(saved: tuple[str, str], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> None:
    monkeypatch.setattr("typer.confirm", lambda *_, **__: False)
    assert plait("checkpoints", "delete", *saved) == 1
    assert len(answer_of(capsys, "checkpoints", "list")) == 2
    assert answer_of(capsys, "checkpoints", "delete", *saved, "--yes") == {"deleted": list(saved)}
    assert answer_of(capsys, "checkpoints", "list") == []
    assert plait("checkpoints", "delete", "not a path", "--yes") == 2
    assert "tinker://" in capsys.readouterr().err


@pytest.mark.parametrize("with_optimizer", [False, True])
def test_a_checkpoint_is_exported(
    saved: tuple[str, str], tmp_path: Path, with_optimizer: bool, capsys: pytest.CaptureFixture[str]
) -> None:
    to = tmp_path / "adapter"
    more = ["--with-optimizer"] if with_optimizer else []
    result = answer_of(capsys, "checkpoints", "export", saved[0], "--to", str(to), *more)
    assert {path.name for path in to.iterdir()} == set(result["files"])
    assert (to / "optimizer.safetensors").exists() == with_optimizer
    assert json.loads((to / "adapter_config.json").read_text())["r"] == 2
    with safe_open(to / "adapter_model.safetensors", framework="np") as tensors:
        assert list(tensors.keys())
    assert plait("checkpoints", "export", saved[0], "--to", str(to)) == 2
    assert "not an empty folder" in capsys.readouterr().err


def test_usage_is_ones_own(server: Any, owner: Any, capsys: pytest.CaptureFixture[str]) -> None:
    assert plait("usage") == 0
    assert "Nothing was used." in capsys.readouterr().out
    sampler = server.client_for(owner.key).create_sampling_client(base_model=server.models[0]).result()
    sampler.sample(tinker.ModelInput.from_ints([3, 4]), 1, tinker.SamplingParams(max_tokens=2, seed=0)).result()
    (row,) = answer_of(capsys, "usage", "--days", "1")["usage"]
    assert row["tenant_id"] == owner.tenant_id
    assert row["num_requests"] >= 1
    assert plait("usage") == 0
    assert owner.tenant_id in capsys.readouterr().out
    assert answer_of(capsys, "usage", "--until", "2020-01-01")["usage"] == []
    assert plait("usage", "--since", "yesterday") == 2
    assert "--since 'yesterday'" in capsys.readouterr().err
    assert plait("usage", "--tenant", "local") == 2
    assert "there is no tenant" in capsys.readouterr().err


def test_keys_over_http(server: Any, owner: Any, capsys: pytest.CaptureFixture[str]) -> None:
    as_admin = ("--url", server.url, "--key", server.admin.key)
    made = answer_of(capsys, "keys", "create", "--tenant", owner.tenant_id, *as_admin)
    listed = answer_of(capsys, "keys", "list", "--tenant", owner.tenant_id, *as_admin)
    assert {row["key_id"] for row in listed} >= {made["key_id"]}
    with server.http(made["key"]) as http:
        assert http.get("/checkpoints").status_code == 200
        assert answer_of(capsys, "keys", "revoke", made["key_id"], *as_admin)["revoked_s"]
        assert http.get("/checkpoints").status_code == 401
    assert plait("keys", "list", "--url", server.url, "--key", owner.key) == 2
    assert "role 'member'" in capsys.readouterr().err
    assert plait("keys", "list", "--url", server.url, "--key", made["key"]) == 2
    assert "unknown or revoked" in capsys.readouterr().err


def test_the_program_that_a_start_shows_runs_as_it_is(server: Any, owner: Any, capsys: pytest.CaptureFixture[str]) -> None:
    exec(snippet(server.models[0]), {})  # Warnings, of methods that are deprecated for instance, are errors here.
    assert capsys.readouterr().out.endswith("\n")
