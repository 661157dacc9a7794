"""Every settings key is read where the work is done: a key that does nothing is a promise broken in silence."""

import ast
from functools import cache
from pathlib import Path

import pytest

import plait
from plait.config.known_keys import walk_keys
from plait.config.run import RunSettings
from plait.config.server import ServerSettings
from plait.types.python_syntax import parse_module

SOURCE = Path(plait.__file__).parent
ONLY_TALK = (SOURCE / "config", SOURCE / "cli")
"""What checks a setting or tells of it does not make it do anything."""
ALLOWED = {
    "aliases": "ServerSettings.model_names",
    "models.aliases": "ServerSettings.model_names",
    "database_url": "ServerSettings.sqlalchemy_url",
    "log_format": "plait.cli.serve",
    "quotas.concurrent_samples": "plait.operations.quotas, by the name of the quota",
}
"""Keys that no attribute access shows, each with where it is used instead."""


@cache
def attributes_read() -> frozenset[str]:
    """Names after a dot in all modules that do something."""
    paths = [path for path in SOURCE.rglob("*.py") if path.parent not in ONLY_TALK]
    nodes = (node for path in paths for node in ast.walk(parse_module(path.read_text())))
    return frozenset(node.attr for node in nodes if isinstance(node, ast.Attribute) and isinstance(node.ctx, ast.Load))


KEYS = set(walk_keys(RunSettings)) | set(walk_keys(ServerSettings))


@pytest.mark.parametrize("key", sorted(KEYS - ALLOWED.keys()))
def test_key_is_used(key: str) -> None:
    assert key.rpartition(".")[2] in attributes_read(), f"nothing reads {key}: use it, or remove it from the settings"


def test_exceptions_are_still_keys() -> None:
    assert ALLOWED.keys() <= KEYS
