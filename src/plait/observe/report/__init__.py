"""The report of a run: one HTML file that needs no network."""

from plait.observe.report.report import build_report, write_report
from plait.observe.report.samples import Sample, TaskSamples

__all__ = ["Sample", "TaskSamples", "build_report", "write_report"]
