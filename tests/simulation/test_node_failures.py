"""Nodes of a simulated cluster that fail."""

import pytest

from plait.simulation.cluster import simulate_jobs
from plait.simulation.cluster_shape import NodeFailure
from plait.simulation.job_shape import JobShape, PartShape
from tests.simulation.test_cluster_jobs import CLUSTER

JOB = JobShape("a", "k", "Qwen3-8B", 0.0, 10, PartShape(8, 100.0), PartShape(8, 20.0))


def test_a_failed_node_costs_the_steps_that_were_not_trained() -> None:
    result = simulate_jobs(CLUSTER, [JOB], "isolated", failures=[NodeFailure("node-0000", 5.5 * 120, 600.0)])
    assert result.jobs[0].restarts == 1
    assert result.makespan_s == pytest.approx(10 * 120 + 60, abs=10)
    assert result.lost_share > 0


def test_a_cluster_whose_nodes_are_all_lost_is_simulated_to_its_end() -> None:
    """Who watches the clock does not keep it going."""
    failures, hours = [NodeFailure(f"node-{number:04}", 500.0) for number in range(4)], list[float]()
    result = simulate_jobs(CLUSTER, [JOB], "pack", failures=failures, on_time=lambda time_s, share: hours.append(time_s))
    assert (result.num_ended, result.jobs[0].steps_done) == (0, 4)
    assert len(hours) < 3
