"""Where questions come from and how answers are scored. Importable without torch and without the environment libraries."""

from plait.environments.client import PooledEnvironment
from plait.environments.demonstration import render_demonstration
from plait.environments.episode import run_episode
from plait.environments.failure import StageFailure
from plait.environments.pool import EnvironmentPool
from plait.environments.protocol import Environment, Example, Reply, Score, SingleTurnEnvironment
from plait.environments.registry import make_environment

__all__ = [
    "Environment",
    "EnvironmentPool",
    "Example",
    "PooledEnvironment",
    "Reply",
    "Score",
    "SingleTurnEnvironment",
    "StageFailure",
    "make_environment",
    "render_demonstration",
    "run_episode",
]
