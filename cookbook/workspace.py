"""The folder that recipes are started in. What lies there under a hub's name for a model or a data set is taken from there."""

import shutil
from collections.abc import Sequence
from pathlib import Path

from tokenizers import AddedToken, Tokenizer

from cookbook.data_sets import write_data_sets
from cookbook.served import ANSWERER_NAME, POLICY_NAME
from plait.models.tiny import DEFAULT_VOCAB_SIZE, make_tiny_model

THINKING = ("<think>", "</think>")
TOKENIZER_FILES = ("config.json", "generation_config.json", "tokenizer.json", "tokenizer_config.json", "special_tokens_map.json")


class Workspace:
    """`model`: whose tokenizer the recipes find under `names`; None: a tiny random one is made here."""

    def __init__(self, folder: Path, model: Path | None = None, names: Sequence[str] = (POLICY_NAME, ANSWERER_NAME)) -> None:
        self.folder = folder
        self.model = model or make_model(folder / "model")
        for name in names:
            copy_tokenizer(self.model, folder / name)
        write_data_sets(folder)

    def log_folder(self, recipe: str) -> Path:
        return self.folder / "runs" / recipe

    def variables(self, url: str, key: str) -> dict[str, str]:
        """Of a recipe's environment. Nothing is fetched, and nothing is left in the home directory."""
        return {
            "TINKER_BASE_URL": url,
            "TINKER_API_KEY": key,
            "TINKER_COOKBOOK_RUNS_DIR": str(self.folder / "runs"),
            "HF_HOME": str(self.folder / "hub"),
            "HF_HUB_OFFLINE": "1",
            "HF_DATASETS_OFFLINE": "1",
            "OMP_NUM_THREADS": "1",
        }


def make_model(folder: Path) -> Path:
    """Random, of 100 k parameters. The renderers of Qwen3.5 need each mark of a thought to be a single token, so they are added."""
    make_tiny_model(folder, vocab_size=DEFAULT_VOCAB_SIZE + len(THINKING))
    tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
    tokenizer.add_tokens([AddedToken(mark, normalized=False) for mark in THINKING])
    tokenizer.save(str(folder / "tokenizer.json"))
    return folder


def copy_tokenizer(model: Path, target: Path) -> None:
    target.mkdir(parents=True, exist_ok=True)
    for name in TOKENIZER_FILES:
        if (model / name).exists():
            shutil.copyfile(model / name, target / name)
