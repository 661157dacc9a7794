"""The compatibility page says what holds."""

from importlib.metadata import version
from pathlib import Path

import pytest

from tests.server.e2e.compatibility import CLIENTS, PAGE, TABLE, VERSION, page, public_methods

TESTS = Path(__file__).parents[1]


def test_the_table_is_of_the_installed_sdk() -> None:
    assert version("tinker") == VERSION


@pytest.mark.parametrize("client", CLIENTS)
def test_every_public_method_has_an_entry(client: type) -> None:
    assert set(public_methods(client)) == set(TABLE[client])


def test_the_page_is_up_to_date() -> None:
    assert PAGE.read_text() == page(), "run `python -m tests.server.e2e.compatibility`"


@pytest.mark.parametrize("client", CLIENTS)
def test_what_is_said_to_work_is_called_by_a_test(client: type) -> None:
    sources = "".join(file.read_text() for file in TESTS.rglob("*.py") if file.name != "compatibility.py")
    claimed = [name for name, entry in TABLE[client].items() if entry.status in ("works", "refused")]
    assert not [
        name for name in claimed if f"{name}(" not in sources and f"{name}_async(" not in sources and f'"{name}"' not in sources
    ]
