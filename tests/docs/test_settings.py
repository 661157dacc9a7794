"""Settings in the documentation and in `examples` are valid, and the page of all keys is what its script writes."""

from pathlib import Path

import pytest

from docs import make_simulation_keys
from docs.make_configuration import PAGE, make_page
from plait.cli.run import example_toml
from plait.config.known_keys import walk_keys
from plait.config.load import load_settings, parse_settings
from plait.config.load_server import load_server_settings
from plait.config.run import RunSettings
from tests.docs.pages import ROOT, Block, all_blocks, write_files


@pytest.mark.parametrize("block", all_blocks("toml"), ids=lambda block: block.place)
def test_blocks_are_valid_settings(block: Block, tmp_path: Path) -> None:
    write_files(block.page, tmp_path)
    if block.page.name == "service.md":
        (tmp_path / "server.toml").write_text(block.text, encoding="utf-8")
        assert load_server_settings(tmp_path / "server.toml", {}).model_names
        return
    assert parse_settings(block.text, tmp_path, block.place).tasks


@pytest.mark.parametrize("file", sorted(ROOT.glob("examples/**/*.toml")), ids=lambda file: file.relative_to(ROOT).as_posix())
def test_examples_are_valid_settings(file: Path) -> None:
    assert load_settings(file).tasks


def test_the_first_file_is_the_same_everywhere() -> None:
    first = (ROOT / "examples" / "first.toml").read_text(encoding="utf-8")
    assert example_toml().splitlines()[1:] == first.splitlines()[1:]


def test_the_page_of_all_keys_is_up_to_date() -> None:
    assert PAGE.read_text(encoding="utf-8") == make_page(), "run: python docs/make_configuration.py"


def test_the_page_of_a_scenarios_keys_is_up_to_date() -> None:
    page = make_simulation_keys.PAGE.read_text(encoding="utf-8")
    assert page == make_simulation_keys.make_page(), "run: python -m docs.make_simulation_keys"


def test_every_key_is_on_the_page() -> None:
    page = PAGE.read_text(encoding="utf-8")
    assert not [path for path in walk_keys(RunSettings) if f"| `{path.rpartition('.')[2]}` |" not in page]
