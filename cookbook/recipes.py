"""The recipes that are run, in order, and what they must come to on a random model of 100 k parameters."""

from cookbook.outcome import between, falls, repeats, rises, some_above
from cookbook.recipe import GRAD_NORM, Recipe
from cookbook.served import ANSWERER_NAME, POLICY_NAME

KL = "optim/kl_sample_train_v1"
REWARD = "env/all/reward/total"
ON_POLICY = between(KL, -0.001, 0.001)
"""Sampler and trainer agree on the log-probabilities of what was sampled."""
LEARNS = some_above(GRAD_NORM, 1e-3)
"""Equal rewards give gradients of rounding errors alone."""
TAUGHT = "sl_loop_resume"
"""Recipe that teaches what the others go on with: answers of which some earn a reward."""

POLICY = {"model_name": POLICY_NAME, "learning_rate": 1e-3}
RL = {**POLICY, "renderer_name": "qwen3_disable_thinking", "eval_every": 0, "save_every": 2, "max_steps": 3}
ARITHMETIC = {**RL, "env": "arithmetic", "group_size": 4, "groups_per_batch": 8, "max_tokens": 8}
GAMES = {**RL, "group_size": 4, "batch_size": 1, "max_tokens": 12, "max_steps": 2}


def _arithmetic(name: str, is_quick: bool = False, **arguments: object) -> Recipe:
    given = {**ARITHMETIC, **{key.replace("__", "."): value for key, value in arguments.items()}}
    is_async = "max_steps_off_policy" in arguments
    return Recipe(
        f"math_rl_{name}", "math_rl.train", given, num_steps=3, starts_from=TAUGHT, shown=(REWARD, KL), is_quick=is_quick,
        expectations=(LEARNS, between(KL, -1, 1) if is_async else ON_POLICY),
    )  # fmt: skip


RECIPES = (
    Recipe(
        TAUGHT, "sl_loop", {**POLICY, "batch_size": 12, "learning_rate": 1e-2, "save_every": 4},
        num_steps=40, kill_at_step=6, shown=("train_mean_nll",), is_quick=True,
        expectations=(falls("train_mean_nll", 2.0), repeats("train_mean_nll")),
    ),
    Recipe(
        "rl_loop", "rl_loop",
        {**POLICY, "batch_size": 8, "group_size": 8, "max_tokens": 32, "max_steps": 5, "save_every": 3, "learning_rate": 2e-3},
        num_steps=5, starts_from=TAUGHT, shown=("reward/total",), expectations=(rises("reward/total", 0.1),), is_quick=True,
    ),
    _arithmetic("default", is_quick=True),
    _arithmetic("importance_sampling", loss_fn="importance_sampling"),
    _arithmetic("ppo", loss_fn="ppo"),
    _arithmetic("async", max_steps_off_policy=2),
    _arithmetic("async_ppo", max_steps_off_policy=2, loss_fn="ppo"),
    _arithmetic(
        "stream", stream_minibatch_config__groups_per_batch=8, stream_minibatch_config__num_minibatches=2, compute_post_kl=True
    ),
    _arithmetic(
        "stream_importance_sampling", stream_minibatch_config__groups_per_batch=8, stream_minibatch_config__num_minibatches=2,
        loss_fn="importance_sampling",
    ),
    Recipe(
        "chat_sl", "chat_sl.train",
        {**POLICY, "batch_size": 16, "learning_rate": 1e-2, "max_steps": 8, "eval_every": 4, "save_every": 4},
        num_steps=8, shown=("train_mean_nll", "test/nll"), expectations=(falls("train_mean_nll", 1.0), falls("test/nll", 1.0)),
    ),
    Recipe(
        "guess_number", "multiplayer_rl.guess_number.train", {**GAMES, "group_size": 6}, num_steps=2, starts_from=TAUGHT,
        shown=(REWARD, KL), expectations=(LEARNS, ON_POLICY),
    ),
    Recipe(
        "twenty_questions", "multiplayer_rl.twenty_questions.train", {**GAMES, "group_size": 2}, num_steps=2,
        shown=(REWARD, KL), expectations=(ON_POLICY,),
    ),
    Recipe(
        "shorter", "preference.shorter.train",
        {key: value for key, value in GAMES.items() if key != "save_every"},
        num_steps=2, shown=(REWARD, KL), expectations=(LEARNS, ON_POLICY),
    ),
    Recipe(
        "dpo", "preference.dpo.train", {**POLICY, "batch_size": 16, "learning_rate": 1e-3, "max_steps": 6},
        num_steps=6, step_metric="dpo_loss", shown=("dpo_loss",), expectations=(falls("dpo_loss", 0.05),), is_quick=True,
    ),
    Recipe(
        "on_policy_distillation", "distillation.on_policy_distillation",
        {**RL, "teacher_model": ANSWERER_NAME, "group_size": 4, "groups_per_batch": 8, "max_tokens": 16, "max_steps": 6,
         "learning_rate": 5e-3},
        num_steps=6, starts_from=TAUGHT, shown=("teacher_kl", KL), expectations=(LEARNS, ON_POLICY, falls("teacher_kl", 1.0)),
    ),
)  # fmt: skip
