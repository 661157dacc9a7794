"""Real prompt groups: SmolLM2's free-running answers to the demo's questions, before and after some training."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from benchmarks.drafting_model import OFF, Model
from plait.client.policies import policy_ref
from plait.client.run import Run
from plait.config.load import load_settings
from plait.config.run import RunSettings
from plait.environments.registry import make_environment
from plait.models.tokenizer import Tokenizer
from plait.state.rundir import RunDirectory
from plait.types.chunks import Chunk
from plait.types.policy import LOCAL_TENANT, AdapterRef, PolicyVersion
from plait.types.sampling import SamplingParams

DEMO = Path(__file__).parent.parent / "examples" / "demo.toml"
GROUP_SIZE = 16
SAMPLE_ROWS = 48
BASE = PolicyVersion(LOCAL_TENANT, "base", 0)
RL_STEPS = 8
"""Of a task of the demo; half as many where supervised steps come before."""


@dataclass(frozen=True, slots=True)
class Group:
    """`answers[i]` is drawn with seed `seed + i`."""

    name: str
    task: str
    stage: str
    """base or trained"""
    prompt: tuple[int, ...]
    seed: int
    answers: tuple[tuple[int, ...], ...] = ()
    adapter: AdapterRef | None = None

    def chunk(self, number: int, sampling: SamplingParams) -> Chunk:
        """The request of answer `number`; `sampling` without a seed."""
        params = SamplingParams(
            sampling.max_new_tokens, sampling.temperature, stop_token_ids=sampling.stop_token_ids, seed=self.seed + number
        )
        policy = self.adapter.policy if self.adapter else BASE
        name = f"{self.name}/{number}"
        return Chunk(name, policy, self.prompt, params.max_new_tokens, params, self.adapter, group=self.name)


def make_groups(tokenizer: Tokenizer, num_prompts: int, adapters: Mapping[str, AdapterRef] | None = None) -> list[Group]:
    """The first questions of each of the demo's tasks, tasks in turn; by the base, or by each task's adapter."""
    settings = load_settings(DEMO)
    environments = {task.name: make_environment(task.environment) for task in settings.tasks}
    stage = "base" if adapters is None else "trained"
    groups = []
    for number in range(num_prompts):
        for index, (task, environment) in enumerate(environments.items()):
            prompt = tokenizer.render_prompt(environment.example(number, "train").messages)
            seed = 1000 * (len(environments) * number + index)
            groups.append(Group(f"{task}/{number}", task, stage, prompt, seed, (), adapters[task] if adapters else None))
    return groups


def sample(model: Model, groups: Sequence[Group], sampling: SamplingParams, group_size: int = GROUP_SIZE) -> list[Group]:
    """The groups with their answers."""
    chunks = [group.chunk(number, sampling) for group in groups for number in range(group_size)]
    results = model.run(OFF, chunks, SAMPLE_ROWS).results
    found = []
    for group in groups:
        answers = tuple(results[f"{group.name}/{number}"].tokens for number in range(group_size))
        found.append(Group(group.name, group.task, group.stage, group.prompt, group.seed, answers, group.adapter))
    return found


def train(folder: Path, rl_steps: int = RL_STEPS) -> Path:
    """Train the demo's tasks for a few steps in a run under `folder`; return the run."""
    with Run(settings=_shortened(load_settings(DEMO), rl_steps), runs=folder) as run:
        run.wait()
    return run.directory.path


def adapters_of(run: Path) -> dict[str, AdapterRef]:
    """The adapter of each of the demo's tasks in a run."""
    directory = RunDirectory.open(run)
    return {task.name: policy_ref(directory, task.name) for task in load_settings(DEMO).tasks}


def _shortened(settings: RunSettings, rl_steps: int) -> RunSettings:
    tasks = []
    for task in settings.tasks:
        updated = {
            "steps": max(1, rl_steps // 2) if task.warm_start.steps else rl_steps,
            "evaluation": task.evaluation.model_copy(update={"questions": 0}),
        }
        tasks.append(task.model_copy(update=updated))
    return settings.model_copy(update={"tasks": tuple(tasks)})
