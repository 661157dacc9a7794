"""Training workers of several ranks that could not be, or would have nothing to do: an adapter is trained by one process."""

from collections.abc import Iterator, Sequence

from plait.config.run import DeploymentWorkerSettings, FurtherModelSettings, RunSettings, WorkerSettings
from plait.config.server import ServerSettings


def ranks_in_threads(workers: DeploymentWorkerSettings, own: str) -> Iterator[str]:
    if workers.executor == "thread" and workers.train_ranks > 1:
        yield f'{_ranks(workers, own)} needs processes of its own: choose {own}workers.executor = "process"'


def idle_ranks(settings: RunSettings) -> Iterator[str]:
    for own, name, workers in _sections(settings.workers, settings.models):
        tasks = settings.of_model(name).tasks if name else settings.tasks
        if workers.train_ranks > 1 and all(task.training == "lora" for task in tasks):
            yield (
                f"{_ranks(workers, own)} shards tasks that train all weights, and there is none: remove it, set "
                f'training = "full" in a task, or train several adapters at once with {own}workers.train_workers'
            )


def idle_server_ranks(settings: ServerSettings) -> Iterator[str]:
    for own, _, workers in _sections(settings.workers, settings.models):
        if workers.train_ranks > 1 and not settings.full.max_resident:
            ranks = _ranks(workers, own)
            yield f"{ranks} shards models that train all weights, and full.max_resident = 0 serves none: raise that, or remove it"


def _sections(first: WorkerSettings, models: Sequence[FurtherModelSettings]) -> Iterator[tuple[str, str, DeploymentWorkerSettings]]:
    """Where workers are set: what stands before the key, the base model that it is for (empty: any), and the section."""
    yield "", "", first
    for index, model in enumerate(models):
        if model.workers is not None:
            yield f'models[{index}] (name "{model.name}").', model.name, model.workers


def _ranks(workers: DeploymentWorkerSettings, own: str) -> str:
    return f"{own}workers.train_ranks = {workers.train_ranks}"
