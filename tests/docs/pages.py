"""The documentation's pages, and the code blocks in them, those of list items too.

A block that has a file name after its language (```python words.py) is a file of that page; any other Python block is run.
"""

import re
import textwrap
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).parents[2]
PAGES = [
    *ROOT.glob("*.md"),
    *(page for folder in ("docs", "examples", "benchmarks", "cookbook") for page in ROOT.glob(f"{folder}/**/*.md")),
]
MODEL = "smollm2-135m-instruct"
"""What the pages call their model; tests put a tiny one in its place."""
_MODEL_ARGUMENT = f'model={{"path": "{MODEL}"}}'
_ONE_WORKER = 'workers={"layout": "shared", "environment_processes": 1}'

_BLOCK = re.compile(
    r"^(?P<indent> *)```(?P<language>\w+)(?: (?P<name>\S+))?\n(?P<text>.*?)^(?P=indent)```$", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Block:
    page: Path
    line: int
    language: str
    name: str
    text: str

    @property
    def place(self) -> str:
        return f"{self.page.relative_to(ROOT).as_posix()}:{self.line}"


def blocks_of(page: Path) -> list[Block]:
    text = page.read_text(encoding="utf-8")
    return [
        Block(page, text.count("\n", 0, found.start()) + 2, found["language"], found["name"] or "", textwrap.dedent(found["text"]))
        for found in _BLOCK.finditer(text)
    ]


def all_blocks(language: str) -> list[Block]:
    """Blocks of all pages that are not files."""
    return [block for page in PAGES for block in blocks_of(page) if block.language == language and not block.name]


def write_files(page: Path, folder: Path) -> None:
    """The page's files, as a reader would save them."""
    for block in blocks_of(page):
        if block.name:
            (folder / block.name).write_text(block.text, encoding="utf-8")


def with_tiny_model(code: str, model: Path) -> str:
    """The code with another model, and with fewer processes: starting them is what takes the time."""
    return code.replace(_MODEL_ARGUMENT, f"{_MODEL_ARGUMENT}, {_ONE_WORKER}").replace(MODEL, str(model))
