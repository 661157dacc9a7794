"""The files in `deploy` are well-formed, and agree with the settings and with each other. (No container engine runs here.)"""

import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from plait.config.load_server import PREFIX, load_server_settings
from plait.server.serve import CLOSE_S, STOP_S

DEPLOY = Path(__file__).parents[2] / "deploy"
CONTAINERFILE = (DEPLOY / "Containerfile").read_text(encoding="utf-8")
UNIT = (DEPLOY / "plait.service").read_text(encoding="utf-8")
COMPOSE: dict[str, Any] = yaml.safe_load((DEPLOY / "compose.yaml").read_text(encoding="utf-8"))
ENVIRONMENT = re.compile(r"\b(PLAIT_SERVER__\w+)=(\S+)")


def check(*command: str) -> None:
    result = subprocess.run([str(Path(sys.executable).with_name(command[0])), *command[1:]], capture_output=True, text=True)
    assert result.returncode == 0, result.stdout + result.stderr


def test_the_containerfile_passes_its_linter() -> None:
    check("hadolint", "--failure-threshold", "info", str(DEPLOY / "Containerfile"))


def test_yaml_passes_its_linter() -> None:
    check("yamllint", "--strict", "--config-file", str(DEPLOY / "yamllint.yaml"), str(DEPLOY))


def test_the_compose_file_has_the_form_that_is_specified() -> None:
    check("check-jsonschema", "--builtin-schema", "vendor.compose-spec", str(DEPLOY / "compose.yaml"))


@pytest.mark.skipif(shutil.which("systemd-analyze") is None, reason="systemd is not installed")
def test_systemd_takes_the_unit(tmp_path: Path) -> None:
    unit = tmp_path / "plait.service"
    unit.write_text(UNIT.replace("/opt/plait/bin/plait", shutil.which("true") or ""), encoding="utf-8")
    result = subprocess.run(["systemd-analyze", "verify", str(unit)], capture_output=True, text=True)
    assert (result.returncode, result.stderr) == (0, "")


def given_settings() -> dict[str, str]:
    """All variables that the files set, with what compose would put in place of its own."""
    found = dict(ENVIRONMENT.findall(CONTAINERFILE + UNIT))
    for name, value in COMPOSE["services"]["plait"]["environment"].items():
        found[name] = re.sub(r"\$\{POSTGRES_PASSWORD[^}]*\}", "secret", re.sub(r"\$\{PLAIT_MODEL:-([^}]*)\}", r"\1", value))
    return found


def test_every_variable_is_a_setting() -> None:
    given = given_settings()
    assert len(given) >= 6
    assert all(name.startswith(PREFIX) for name in given)
    settings = load_server_settings(None, given)
    assert settings.sqlalchemy_url == "postgresql://plait:secret@postgres/plait"
    assert settings.log_format == "json"


def test_the_container_does_not_run_as_root_and_is_watched() -> None:
    stage = CONTAINERFILE.rpartition("FROM ")[2]
    assert re.search(r"^USER [1-9]\d+$", stage, re.MULTILINE)
    assert "/readyz" in stage.partition("HEALTHCHECK")[2]
    assert stage.index("USER") < stage.index("ENTRYPOINT")


def test_nothing_is_stopped_before_it_can_have_ended() -> None:
    needed_s = load_server_settings(None, {}).stop_timeout_s + STOP_S + CLOSE_S
    grace = re.fullmatch(r"(\d+)s", COMPOSE["services"]["plait"]["stop_grace_period"])
    timeout = re.search(r"^TimeoutStopSec=(\d+)$", UNIT, re.MULTILINE)
    assert grace is not None
    assert timeout is not None
    assert min(int(grace[1]), int(timeout[1])) > needed_s


def test_what_is_copied_exists_and_reaches_the_builder() -> None:
    ignored = (DEPLOY / "Containerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    names = [name for line in re.findall(r"^COPY (?!--from)(.*)$", CONTAINERFILE, re.MULTILINE) for name in line.split()[:-1]]
    assert names
    assert not [name for name in names if not (DEPLOY.parent / name).exists() or f"!{name}" not in ignored]


def test_the_database_password_is_in_no_file() -> None:
    for path in DEPLOY.iterdir():
        assert not re.search(r"PASSWORD: (?!\$\{)", path.read_text(encoding="utf-8")), path
