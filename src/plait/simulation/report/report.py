"""Builds the page: figures side by side, charts, then each task or job. The numbers are in the HTML itself; scripts only draw."""

from plait.observe.report.page import ECHARTS, STYLE, json_in_html, render
from plait.simulation.report.bars import bar_sets
from plait.simulation.report.chart_data import chart_data
from plait.simulation.report.tables import comparison, tiles, wait_tables, work_tables
from plait.simulation.results import ScenarioResult

HERE = "plait.simulation.report"


def build_report(result: ScenarioResult) -> str:
    """The same result gives the same page."""
    data = chart_data(result)
    return render(
        HERE, "simulation.html.jinja", [ECHARTS, (HERE, "static", "simulation.js")], [STYLE, (HERE, "static", "simulation.css")],
        result=result,
        noun="task" if result.kind == "tasks" else "job",
        tiles=tiles(result),
        bars=bar_sets(result),
        rows=comparison(result),
        kinds=data["kinds"],
        spans=[(spans["system"], len(spans["works"]), spans["total"]) for spans in data["spans"]],
        series=[series["name"] for series in data["series"]],
        has_slowdowns=any(line["values"] for line in data["slowdowns"]),
        waits=wait_tables(result),
        works=work_tables(result),
        data=json_in_html(data),
    )  # fmt: skip
