"""Golden files: `python -m tests.simulation.golden_files` writes them anew, for a change that was meant."""

import json
from functools import cache
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

from plait.simulation.load_scenario import parse_scenario
from plait.simulation.report import build_report
from plait.simulation.results import ScenarioResult
from plait.simulation.simulate import simulate
from tests.simulation.scenarios import JOBS, TASKS

FOLDER = Path(__file__).parent / "golden"
TEXTS = {"tasks": TASKS, "jobs": JOBS}


@cache
def result_of(kind: str) -> ScenarioResult:
    return simulate(parse_scenario(TEXTS[kind]), "golden", seed=1)


def figures(result: ScenarioResult) -> dict[str, Any]:
    return {system.name: {key: _rounded(value) for key, value in system.figures.items()} for system in result.systems}


def _rounded(value: float | None) -> float | None:
    """To ten digits: the last ones of logarithms and exponentials differ between mathematics libraries."""
    return None if value is None else float(f"{value:.10g}")


class _Words(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.hidden, self.lines = 0, list[str]()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.hidden += tag in ("script", "style")

    def handle_endtag(self, tag: str) -> None:
        self.hidden -= tag in ("script", "style")

    def handle_data(self, data: str) -> None:
        if not self.hidden and data.strip():
            self.lines.append(" ".join(data.split()))


def words(html: str) -> str:
    """What a page says, a line for each piece of text."""
    parser = _Words()
    parser.feed(html)
    return "\n".join(parser.lines) + "\n"


def main() -> None:
    FOLDER.mkdir(exist_ok=True)
    for kind in TEXTS:
        result = result_of(kind)
        (FOLDER / f"{kind}.json").write_text(json.dumps(figures(result), indent=1) + "\n", encoding="utf-8")
        (FOLDER / f"{kind}.txt").write_text(words(build_report(result)), encoding="utf-8")


if __name__ == "__main__":
    main()
