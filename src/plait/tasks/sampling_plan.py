"""How a task's answers are drawn: seeds and parameters. Pure."""

from plait.config.task import TaskSettings
from plait.types.sampling import SamplingParams
from plait.types.seeds import derive_seed


def training_params(
    settings: TaskSettings, run_seed: int, step: int, group: int, sample: int, stops: tuple[int, ...]
) -> SamplingParams:
    """No two samples share noise, and a resumed or retried one draws the same tokens."""
    seed = derive_seed("rollout", run_seed, settings.seed, settings.name, step, group, sample)
    return SamplingParams(
        max_new_tokens=settings.sampling.max_new_tokens,
        temperature=settings.sampling.temperature,
        stop_token_ids=stops,
        stop_strings=settings.sampling.stop_strings,
        seed=seed,
    )


def evaluation_params(settings: TaskSettings, run_seed: int, question: int, stops: tuple[int, ...]) -> SamplingParams:
    """The same noise for each version, so that two evaluations differ by the policy alone."""
    return SamplingParams(
        max_new_tokens=settings.sampling.max_new_tokens,
        temperature=settings.evaluation.temperature,
        stop_token_ids=stops,
        stop_strings=settings.sampling.stop_strings,
        seed=derive_seed("evaluation", run_seed, settings.seed, settings.name, question),
    )
