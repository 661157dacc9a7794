"""Lines of values: every key that was written is found on the line where it was written."""

import json
import tomllib

from hypothesis import given
from hypothesis import strategies as st

from plait.simulation.toml_lines import TomlLines

TEXT = '''\
top = 1
text = """
not = "a key"
[neither]
"""
"quoted key" = 2  # quoted

[table]
a = [
  1,  # [no.header]
  { b = 2 },
]
dotted.inner = 3

[[list]]
name = "one"
[list.sub]
x = 1
[[list]]
name = "two"
[[list.deep]]
y = 1
[[list.deep]]
y = 2
'''


def test_each_value_is_on_its_line() -> None:
    lines = TomlLines(TEXT)
    wanted: dict[tuple[str | int, ...], int | None] = {
        ("top",): 1, ("text",): 2, ("quoted key",): 6, ("table",): 8, ("table", "a"): 9, ("table", "a", 1, "b"): 9,
        ("table", "dotted", "inner"): 13, ("list", 0): 15, ("list", 0, "name"): 16, ("list", 0, "sub"): 17,
        ("list", 0, "sub", "x"): 18, ("list", 1, "name"): 20, ("list", 1, "deep", 0, "y"): 22,
        ("list", 1, "deep", 1, "y"): 24, ("list", 1, "missing"): 19,
        ("missing",): None, (): None,
    }  # fmt: skip
    assert {location: lines.line_of(location) for location in wanted} == wanted
    assert tomllib.loads(TEXT)["list"][1]["deep"][1]["y"] == 2


keys = st.text("abcde-_ .", min_size=1, max_size=5)
values = st.one_of(st.integers(), st.text("ab\n\"'[]#=", max_size=8), st.lists(st.integers(), max_size=3))


@given(st.lists(st.tuples(keys, st.dictionaries(keys, values, max_size=4)), max_size=5), st.integers(0, 2))
def test_any_tables_of_keys_are_found(tables: list[tuple[str, dict[str, object]]], num_blank: int) -> None:
    """Against writing the text line by line, and noting where each key went."""
    text: list[str] = []
    wanted: dict[tuple[str | int, ...], int] = {}
    counts: dict[str, int] = {}
    for name, entries in tables:
        text += [""] * num_blank + [f"[[{json.dumps(name)}]] # [comment]"]
        number = counts[name] = counts.get(name, -1) + 1
        wanted[name, number] = len(text)
        for key, value in entries.items():
            text.append(f"{json.dumps(key)} = {json.dumps(value)}")
            wanted[name, number, key] = len(text)
    lines = TomlLines("\n".join(text))
    assert {location: lines.line_of(location) for location in wanted} == wanted
