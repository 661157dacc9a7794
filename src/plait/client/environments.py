"""The environments of all tasks of a run, in processes of their own."""

from plait.config.run import RunSettings
from plait.environments.pool import EnvironmentPool


async def start_environments(settings: RunSettings, num_processes: int) -> EnvironmentPool:
    """Build every task's environment. Raises ConfigError or StageFailure for the first that cannot be."""
    return await EnvironmentPool.start({task.name: task.environment for task in settings.tasks}, num_processes)


async def check_environments(settings: RunSettings) -> None:
    """Build every task's environment once, and take it down again."""
    environments = await start_environments(settings, 1)
    await environments.close()
