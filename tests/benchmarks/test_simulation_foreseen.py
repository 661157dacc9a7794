"""The real benchmark on SmolLM2, foreseen from a profile: with the benchmark's workload, all clear orderings are real."""

from itertools import combinations

from benchmarks.simulation_foreseen import FIGURES, foresee
from benchmarks.simulation_scores import TIE, TOLERANCE, measured


def test_most_figures_and_every_clear_ordering_are_foreseen() -> None:
    found = [(row, simulated) for _, row, simulated in foresee(measured("marlaas-real-model"))]
    assert len(found) == 6
    off = [abs(simulated[figure] / row[figure] - 1) for row, simulated in found for figure in FIGURES]
    assert sum(one <= TOLERANCE for one in off) >= 0.8 * len(off)
    figure = FIGURES[0]
    for (one, its), (other, others) in combinations(found, 2):
        if abs(one[figure] / other[figure] - 1) > TIE:
            assert (one[figure] < other[figure]) == (its[figure] < others[figure]), (one["system"], other["system"])
