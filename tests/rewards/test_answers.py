import pytest
from hypothesis import given
from hypothesis import strategies as st

from plait.rewards.answers import boxed, calculator_call, last_number, tag, whole
from plait.rewards.numbers import parse_number


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("so 1,234 + 1 = 1,235.", "1235"),
        ("5-3", "3"),
        ("x = -7", "-7"),
        ("(-4)", "-4"),
        ("2 - (−3)", "-3"),
        ("1,2,3", "3"),
        ("3.50", "3.50"),
        ("The answer is 12", "12"),
        ("none", None),
        ("", None),
    ],
)
def test_last_number(text: str, number: str | None) -> None:
    assert last_number(text) == number


@given(st.integers(-(10**9), 10**9), st.text(alphabet="abc \n.!", max_size=10))
def test_last_number_finds_any_integer(value: int, after: str) -> None:
    assert last_number(f"it is {value}{after}") == str(value)
    assert last_number(f"it is {value:,}{after}") == str(value)


def test_whole() -> None:
    assert whole("  a b\n") == "a b"
    assert whole(" \n") is None


def test_tag_takes_the_last_pair() -> None:
    assert tag("<answer>1</answer> no <answer>\n2 </answer> <answer>3") == "2"
    assert tag("<answer><answer>4</answer>") == "4"
    assert tag("<answer> </answer>") is None
    assert tag("2") is None


def test_boxed_takes_the_last_complete_box() -> None:
    assert boxed(r"\boxed{1} then \boxed{\frac{1}{2}} and \boxed{3") == r"\frac{1}{2}"
    assert boxed(r"\boxed{\{1, 2\}}") == r"\{1, 2\}"
    assert boxed("no box") is None


def test_calculator_call() -> None:
    assert calculator_call("Sure: calc((3 + 4) * 2) calc(1)") == "(3 + 4) * 2"
    assert calculator_call("calc(3 + 4") is None
    assert calculator_call("recalc(3)") is None


@given(st.text(max_size=60))
def test_extractors_take_any_text(text: str) -> None:
    for extract in (last_number, whole, tag, boxed, calculator_call):
        answer = extract(text)
        assert answer is None or answer == answer.strip() != ""
    parse_number(text)


@pytest.mark.parametrize("text", ["10^{99999999999}", "1/0", r"\frac{1}{0}", "0^{-1}", "1e999999999", "1,23"])
def test_numbers_that_have_no_exact_value(text: str) -> None:
    assert parse_number(text) is None
