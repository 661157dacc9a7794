import threading

import pytest

from plait.rewards.math import Verdict, check_math, read_gold

CORRECT = [
    (r"-2\pi", "-2*pi"),
    (r"-2\pi", r"The answer is $-2\pi$."),
    (r"-2\pi", r"\boxed{-2 \pi}"),
    (r"\frac{1}{2}", r"\boxed{\dfrac12}"),
    (r"\frac{1}{2}", r"\boxed{0.5}"),
    (r"\frac{1}{2}", "1/2"),
    (r"\frac{\sqrt{3}}{2}", r"so it is \boxed{\frac{\sqrt{3}}{2}}"),
    (r"\frac{\sqrt{3}}{2}", "sqrt(3)/2"),
    (r"\frac{1}{1+\frac{1}{2}}", r"\boxed{\frac{1}{1+\frac{1}{2}}}"),
    ("2^{-98}", r"\boxed{2^{-98}}"),
    ("1024", r"\boxed{2^{10}}"),
    ("42", "The answer is 42."),
    ("42", "#### 42"),
    ("42", "41 is wrong, 42"),
    ("72", "Natalia sold 48+24 = 72 clips.\n#### 72"),
    ("1234", "1,234"),
    ("1,234", r"\boxed{1234}"),
    ("1{,}000", r"\boxed{1000}"),
    ("5", r"\boxed{5\text{ cm}}"),
    (r"5\text{ cm}", r"\boxed{5}"),
    (r"5\text{ cm}^2", r"\boxed{5}"),
    (r"30^\circ", r"\boxed{30}"),
    ("18", r"\boxed{\$18}"),
    ("18", "$18"),
    (r"50\%", r"\boxed{50}"),
    (r"50\%", r"\boxed{50\%}"),
    (r"50\%", r"\boxed{0.5}"),
    ("0.5", r"\boxed{50\%}"),
    ("3", r"\boxed{x = 3}"),
    ("x=3", r"\boxed{3}"),
    ("(1,2)", r"\boxed{(1, 2)}"),
    ("[1,2)", r"\boxed{[1,2)}"),
    (r"(-\infty, 3]\cup(5,\infty)", r"\boxed{(5,\infty)\cup(-\infty,3]}"),
    (r"\{1,2\}", r"\boxed{\{2,1\}}"),
    ("1,2,3", r"\boxed{3,2,1}"),
    ("n=1,2,3", r"\boxed{n=1,2,3}"),
    ("x^2+2x+1", r"\boxed{(x+1)^2}"),
    (r"\text{east}", r"\boxed{\text{East}}"),
    (r"\text{(A)}", r"\boxed{A}"),
    ("2", r"First \boxed{1}, no: \boxed{2}"),
    ("2", r"\boxed{2} and then \boxed{3"),
    (r"\frac{1}{3}", "0.333333"),
    ("3.50", r"\boxed{3.5}"),
    ("-4", r"\boxed{−4}"),
    (r"\sqrt{2}", r"\boxed{1.41421356}"),
    ("1.5 \\times 10^{3}", r"\boxed{1500}"),
]

WRONG = [
    ("n=1,2,3", r"\boxed{n=2,3,4}"),
    ("1,2,3", r"\boxed{2,3,4}"),
    ("2^{-98}", r"\boxed{2^{-99}}"),
    (r"2^{-98}\sqrt{2}", r"\boxed{2^{-99}\sqrt{2}}"),
    (r"10^{-9}\sqrt{2}", r"\boxed{10^{-9} \cdot 1.5}"),
    ("1", r"\boxed{1} wait, \boxed{2}"),
    ("42", "The answer is 43."),
    ("42", "#### 43"),
    ("(1,2)", r"\boxed{(2,1)}"),
    ("(1,2)", r"\boxed{[1,2]}"),
    ("[1,2)", r"\boxed{[1,2]}"),
    (r"\{1,2\}", r"\boxed{\{1,2,3\}}"),
    ("0.5", r"\boxed{0.5\%}"),
    ("0.5", r"\boxed{50}"),
    (r"\frac{1}{3}", "0.33"),
    (r"-2\pi", r"\boxed{2\pi}"),
    ("x=3", r"\boxed{y=3}"),
    ("5", r"\boxed{5.0001}"),
    (r"\text{east}", r"\boxed{\text{west}}"),
    ("10", "1"),
]

UNPARSABLE = [("42", "I do not know."), ("42", ""), (r"\sqrt{2}", r"\boxed{\frac{1}{}"), (r"\sqrt{2}", "no idea at all, sorry")]


@pytest.mark.parametrize(("gold", "text"), CORRECT)
def test_right_answers_are_right(gold: str, text: str) -> None:
    assert check_math(read_gold(gold), text) is Verdict.CORRECT


@pytest.mark.parametrize(("gold", "text"), WRONG)
def test_wrong_answers_are_wrong(gold: str, text: str) -> None:
    assert check_math(read_gold(gold), text) is Verdict.WRONG


@pytest.mark.parametrize(("gold", "text"), UNPARSABLE)
def test_what_cannot_be_read_is_told_apart(gold: str, text: str) -> None:
    assert check_math(read_gold(gold), text) is Verdict.UNPARSABLE


@pytest.mark.parametrize("gold", ["", "   ", r"\frac{1}{", "$$", "}{", "???"])
def test_unreadable_gold_is_an_error(gold: str) -> None:
    with pytest.raises(ValueError, match="cannot be read"):
        read_gold(gold)


@pytest.mark.parametrize("gold", [gold for gold, _ in CORRECT])
def test_every_gold_equals_itself(gold: str) -> None:
    assert check_math(read_gold(gold), rf"\boxed{{{gold}}}") is Verdict.CORRECT


def test_works_in_a_thread() -> None:
    """Signal-based timers raise outside the main thread, which others turned into zero rewards."""
    verdicts: list[Verdict] = []
    thread = threading.Thread(target=lambda: verdicts.append(check_math("x^2+2x+1", r"\boxed{(x+1)^2}")))
    thread.start()
    thread.join()
    assert verdicts == [Verdict.CORRECT]
