"""docs/results.md and the files that it is made of agree, and so do those and the shipped scenarios."""

from docs.make_results import PAGE, TITLES, make_page, of, read_results
from plait.simulation.load_scenario import load_scenario


def test_the_page_is_made_of_the_files() -> None:
    assert PAGE.read_text(encoding="utf-8") == make_page(read_results())


def test_the_files_have_what_the_scenarios_say() -> None:
    results = read_results()
    for name in TITLES.keys() & results.keys():
        scenario = load_scenario(name)
        assert [row["text"] for row in of(results[name], "assumption")] == list(scenario.assumptions)
        of_scenario = of(results[name], "paper")[: len(scenario.paper)]  # One more may be of the benchmark's grid.
        assert [(row["what"], row["low"]) for row in of_scenario] == [(one.what, one.low) for one in scenario.paper]
