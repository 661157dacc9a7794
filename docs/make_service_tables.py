"""Write the tables of docs/service.md, each between its marks: settings from their types and docstrings, metrics from their help.

`python docs/make_service_tables.py`; with `--check` nothing is written, and the exit code is 1 if the page is out of date.
"""

import re
import sys
from collections.abc import Iterator
from pathlib import Path

from pydantic.fields import FieldInfo

if __name__ == "__main__":
    sys.path.insert(0, str(Path(__file__).parents[1]))

from docs.make_configuration import _cell, _default, _inner_or_none, _type
from plait.config.base import Settings
from plait.config.run import RunSettings
from plait.config.server import ServerSettings

PAGE = Path(__file__).with_name("service.md")
MARKS = "<!-- {name}: written by docs/make_service_tables.py -->", "<!-- end of {name} -->"


def main() -> None:
    text = PAGE.read_text(encoding="utf-8")
    page = with_tables(text)
    if "--check" in sys.argv[1:]:
        sys.exit(0 if page == text else f"{PAGE} is out of date: run {__file__}")
    PAGE.write_text(page, encoding="utf-8")


def with_tables(page: str) -> str:
    for name, lines in (("settings", _settings()), ("metrics", _metrics())):
        start, end = (mark.format(name=name) for mark in MARKS)
        pattern = re.compile(rf"{re.escape(start)}\n.*?{re.escape(end)}", re.DOTALL)
        if not pattern.search(page):
            raise SystemExit(f"{PAGE} has no place for the {name}")
        table = "\n".join([start, "", *lines, "", end])
        page = pattern.sub(lambda _, table=table: table, page)  # type: ignore[misc]
    return page


def _settings() -> Iterator[str]:
    yield from ("| key | type | default | meaning |", "|---|---|---|---|")
    for key, field, meaning in _keys(ServerSettings, ""):
        yield f"| `{key}` | {_cell(_type(field))} | {_cell(_default_of(field))} | {_cell(meaning)} |"


def _default_of(field: FieldInfo) -> str:
    return f'`"{field.default}"`' if isinstance(field.default, Path) else _default(field)


def _keys(settings: type[Settings], prefix: str) -> Iterator[tuple[str, FieldInfo, str]]:
    """Tables that a run has too are described on their own page."""
    for name, field in settings.model_fields.items():
        inner = _inner_or_none(settings, name)
        if inner is None:
            yield f"{prefix}{name}", field, " ".join((field.description or "").split())
        elif name not in RunSettings.model_fields:
            yield from _keys(inner, f"{prefix}{name}.")


def _metrics() -> Iterator[str]:
    from plait.server import engine_gauges, gauges, group_gauges
    from plait.server.metrics import Metrics

    yield from ("| metric | kind | meaning |", "|---|---|---|")
    for family in Metrics().registry.collect():
        if family.name.startswith("plait_"):
            name = f"{family.name}_total" if family.type == "counter" else family.name
            yield f"| `{name}` | {family.type} | {_cell(family.documentation)} |"
    texts = {**gauges.TEXTS, **gauges.TEXTS_OF_BASES, **engine_gauges.TEXTS, engine_gauges.COUNTS: engine_gauges.COUNTS_TEXT}
    texts |= {**group_gauges.TEXTS, **group_gauges.TEXTS_OF_MODELS}
    for name, text in texts.items():
        yield f"| `plait_{name}` | gauge | {_cell(text)} |"


if __name__ == "__main__":
    main()
