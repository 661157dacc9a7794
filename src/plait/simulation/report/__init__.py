"""The report of a simulation: one HTML file that needs no network."""

from plait.simulation.report.report import build_report

__all__ = ["build_report"]
