"""What pages name exists: files of the source, modules that are run, packages. Blocks that nothing runs parse."""

import importlib.util
import json
import re
import subprocess

import pytest
import yaml

from tests.docs.pages import PAGES, ROOT, Block, all_blocks, blocks_of

ARCHITECTURE = ROOT / "docs" / "architecture.md"
SOURCES = [path.relative_to(ROOT).as_posix() for folder in ("src", "tests", "docs") for path in (ROOT / folder).rglob("*.py")]
PACKAGES = sorted(path.parent.name for path in (ROOT / "src" / "plait").glob("*/__init__.py"))
SHELL_BLOCKS = [block for language in ("bash", "sh") for block in all_blocks(language)]


def found(pattern: str) -> list[tuple[str, str]]:
    """(page, what the pattern's group matches there) over all pages."""
    return [(page.name, text) for page in PAGES for text in re.findall(pattern, page.read_text(encoding="utf-8"))]


def test_source_files_that_pages_name_exist() -> None:
    own = {block.name for page in PAGES for block in blocks_of(page)}
    named = [(page, file) for page, file in found(r"`([\w./-]+\.py)`") if file not in own]
    assert len(named) > 30
    assert not [(page, file) for page, file in named if not any(f"/{source}".endswith(f"/{file}") for source in SOURCES)]


def test_modules_that_pages_run_or_name_exist() -> None:
    modules = found(r"python -m ((?:benchmarks|tests|docs|cookbook)\.\w+(?:\.\w+)*)") + found(r"`(benchmarks\.[a-z_]+)`")
    assert len(modules) > 10
    assert not [(page, name) for page, name in modules if name != "benchmarks.NAME" and importlib.util.find_spec(name) is None]


def test_the_architecture_lists_every_package_once() -> None:
    rows = re.findall(r"^\| (`\w+`(?:, `\w+`)*) \|", ARCHITECTURE.read_text(encoding="utf-8"), re.MULTILINE)
    assert sorted(name.strip("` ") for row in rows for name in row.split(",")) == PACKAGES


@pytest.mark.parametrize("block", SHELL_BLOCKS, ids=lambda block: block.place)
def test_shell_blocks_parse(block: Block) -> None:
    result = subprocess.run(["bash", "-n"], input=block.text, capture_output=True, text=True)
    assert result.returncode == 0, result.stderr


def test_other_blocks_parse() -> None:
    for block in all_blocks("yaml"):
        assert yaml.safe_load(block.text), block.place
    lines = [line for page in PAGES for block in blocks_of(page) if block.language == "json" for line in block.text.splitlines()]
    assert lines
    assert all(json.loads(line) for line in lines)


def test_every_block_says_its_language() -> None:
    """One that does not is checked by nothing."""
    fences = [(page, fence) for page, fence in found(r"(?m)^ *```(.*)$")]
    assert not [page for page, fence in fences[::2] if not fence]
