"""Settings of worker groups that would have no effect. Every fault names the numbers it comes from."""

from collections.abc import Iterator, Sequence

from plait.config.run import FurtherModelSettings, ModelSettings, WorkerSettings


def check_groups(workers: WorkerSettings, first: ModelSettings, further: Sequence[FurtherModelSettings]) -> Iterator[str]:
    """More groups than base models to put there, and how to place them where there is no choice."""
    num_models = 1 + len(further)
    is_multiplexed = workers.is_multiplexed
    if is_multiplexed and workers.groups > num_models:
        models = "1 base model is" if num_models == 1 else f"{num_models} base models are"
        yield f"workers.groups = {workers.groups} leaves groups without work where {models} served: lower it to {num_models}"
    if is_multiplexed and workers.groups > 1:
        return
    for key, value in _choices(workers, first, further):
        remedy = "raise workers.groups" if is_multiplexed else 'choose workers.layout = "multiplexed" and several workers.groups'
        yield f"{key} = {value} has no effect with one group of workers: remove it, or {remedy}"


def _choices(workers: WorkerSettings, first: ModelSettings, further: Sequence[FurtherModelSettings]) -> Iterator[tuple[str, str]]:
    """What somebody has said of the choice between groups, key and value."""
    defaults = WorkerSettings.model_fields
    if workers.placement != defaults["placement"].default:
        yield "workers.placement", f'"{workers.placement}"'
    if workers.max_slowdown != defaults["max_slowdown"].default:
        yield "workers.max_slowdown", f"{workers.max_slowdown}"
    if first.max_slowdown is not None:
        yield "model.max_slowdown", f"{first.max_slowdown}"
    for index, model in enumerate(further):
        if model.max_slowdown is not None:
            yield f'models[{index}] (name "{model.name}").max_slowdown', f"{model.max_slowdown}"
