"""Write docs/simulation-keys.md from the settings' own types, bounds and docstrings: `python -m docs.make_simulation_keys`.

With `--check` nothing is written; the exit code is 1 if the page is not what would be written.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

from docs.make_configuration import settings_section
from plait.config.base import Settings
from plait.simulation import job_scenario as j
from plait.simulation import scenario as s

PAGE = Path(__file__).with_name("simulation-keys.md")
OPENING = """\
# Keys of a scenario

<!-- Written by docs/make_simulation_keys.py. Do not edit: change the docstrings in src/plait/simulation, then run it. -->

What they are for: [simulation](simulation.md). "–" in the column of defaults means that the key is absent; **required** that it
must be given.
"""
SHARED: tuple[tuple[str, type[Settings]], ...] = (("[cluster]", s.ClusterSettings), ("[efficiency]", s.EfficiencySettings))
TASKS: tuple[tuple[str, type[Settings]], ...] = (
    ("[model]", s.BaseSettings), ("[rollout]", s.RolloutSettings), ("[training]", s.TrainingSettings),
    ("[[tasks]]", s.TaskSettings), ("lengths of [[tasks]]", s.LengthSettings), ("[[systems]]", s.TaskSystem),
)  # fmt: skip
JOBS: tuple[tuple[str, type[Settings]], ...] = (
    ("[[jobs]]", j.JobSettings), ("rollout and train of [[jobs]]", j.PartSettings), ("[[systems]]", j.JobSystem),
    ("[trace]", j.TraceSettings), ("[[failures]]", j.FailureSettings),
)  # fmt: skip


def main() -> None:
    page = make_page()
    if "--check" in sys.argv[1:]:
        is_current = PAGE.exists() and PAGE.read_text(encoding="utf-8") == page
        sys.exit(0 if is_current else f"{PAGE} is out of date: run python -m docs.make_simulation_keys")
    PAGE.write_text(page, encoding="utf-8")


def make_page() -> str:
    lines = [OPENING, *_part("Both kinds", None, SHARED), *_part('kind = "tasks"', s.TaskScenario, TASKS)]
    return "\n".join([*lines, *_part('kind = "jobs"', j.JobScenario, JOBS)])


def _part(title: str, root: type[Settings] | None, tables: tuple[tuple[str, type[Settings]], ...]) -> Iterator[str]:
    yield from (f"## {title}", "")
    if root is not None:
        yield from settings_section("the file itself", "", root, level=3)
    for name, settings in tables:
        yield from settings_section(name, " ".join((settings.__dict__.get("__doc__") or "").split()), settings, level=3)


if __name__ == "__main__":
    main()
