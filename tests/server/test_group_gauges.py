"""What Prometheus hears of worker groups and the base models on them."""

import logging
from pathlib import Path

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from plait.observe.events import JobMoved, Note
from plait.server.group_gauges import GroupGauges, log_placement
from tests.cluster.groups.jobs import make_group
from tests.cluster.groups.test_placement_loop import NAMES, Job


def test_groups_and_base_models_are_told(tmp_path: Path) -> None:
    groups = make_group(tmp_path, 100, names=NAMES)
    for name in ("large", "small"):
        Job(groups, name, 10.0, 3.0)
    groups.look()
    groups.moved("small", "g0")
    registry = CollectorRegistry()
    registry.register(GroupGauges(groups))
    page = generate_latest(registry).decode()
    assert 'plait_group_moves{group="g0"} 1.0' in page
    assert 'plait_group_busy_seconds{group="g1"} 0.0' in page
    assert 'plait_model_group{base_model="small",group="g0"} 1.0' in page
    assert 'plait_model_expected_slowdown{base_model="large",group="g0"} 1.0' in page
    [period] = [line for line in page.splitlines() if line.startswith('plait_model_period_seconds{base_model="large"')]
    assert float(period.split()[-1]) == pytest.approx(10.0, rel=0.01)


def test_moves_and_what_goes_wrong_are_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "plait.server"):
        log_placement(JobMoved(time_s=0.0, job="small", source="g0", target="g1"))
        log_placement(Note(time_s=0.0, level="warning", message="small stays at g0"))
    assert [(record.levelname, record.getMessage()) for record in caplog.records] == [
        ("INFO", "base model small moved from g0 to g1"),
        ("WARNING", "small stays at g0"),
    ]
