from hypothesis import given
from hypothesis import strategies as st

from plait.observe.text import bar, duration, last_line, model_name, one_line, percent, printable, sparkline


@given(st.text())
def test_printable_text_cannot_steer_a_terminal(text: str) -> None:
    shown = printable(text)
    assert not any((ord(c) < 0x20 and c not in "\n\t") or 0x7F <= ord(c) < 0xA0 or 0x202A <= ord(c) <= 0x202E for c in shown)
    shown.encode()


def test_printable_keeps_what_is_harmless() -> None:
    assert printable("naïve 數\n\tok") == "naïve 數\n\tok"
    assert printable("\x1b[2J\r\x00\x7f\x9b") == "␛[2J␍␀␡<009b>"
    assert printable("\ud800") == "<d800>"


@given(st.lists(st.floats(-1e6, 1e6), max_size=40))
def test_sparkline_has_a_bar_for_each_recent_value(values: list[float]) -> None:
    line = sparkline(values, 10)
    assert len(line) == min(10, len(values))
    if values and min(values[-10:]) < max(values[-10:]):
        assert line[values[-10:].index(max(values[-10:]))] == "█"


def test_sparkline_of_a_constant_is_flat() -> None:
    assert sparkline([0.5] * 4) == "▄▄▄▄"


@given(st.floats(-1, 2))
def test_bar_has_a_fixed_width(share: float) -> None:
    assert len(bar(share, 12)) == 12


def test_words() -> None:
    assert [duration(s) for s in (0, 9.94, 42, 61, 3599.9, 7505, 200_000)] == [
        "0.0 s", "9.9 s", "42 s", "1 min 01 s", "1 h 00 min", "2 h 05 min", "2 d 7 h"]  # fmt: skip
    assert (percent(None), percent(0.256)) == ("-", "26 %")
    assert one_line("a\n  b\tc", 10) == "a b c"
    assert one_line("a" * 20, 5) == "aaaa…"
    assert last_line("Traceback\n  x\nValueError: no\n\n") == "ValueError: no"
    assert last_line("") == ""
    names = ["Qwen/Qwen3-8B", "smollm2", "/data/models/smol/", "./smol.gguf"]
    assert [model_name(name) for name in names] == ["Qwen/Qwen3-8B", "smollm2", "smol", "smol.gguf"]
