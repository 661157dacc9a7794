# Plait. `make help` lists what there is to do; every target sets up what it needs.
SHELL := bash
.SHELLFLAGS := -eu -o pipefail -c
.DEFAULT_GOAL := help
MAKEFLAGS += --no-print-directory

VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
PYTHON ?= $(shell command -v python3.11 || command -v python3)
PIP := $(BIN)/python -m pip --disable-pip-version-check --no-input install --progress-bar off
DEMO_MODEL := smollm2-135m-instruct
# Without its dependencies: it asks for a tml-renderers that no index has, and uses it for models that are not served here.
COOKBOOK := tinker-cookbook==0.6.1

# Index to take torch from, and only torch; empty: pip's own. Name the index of a CPU build, and a laptop does not fetch CUDA.
TORCH_INDEX ?=
# More for pytest, such as ARGS="tests/state -x".
ARGS ?=
# Processes that share the test files; each file runs in one of them. One more than two cores have: many tests wait for others.
TEST_PROCESSES ?= 3

.PHONY: help setup demo test test-vllm check format bench bench-peers cookbook docs clean

help: ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | awk -F '\t' '{ printf "  make %-12s %s\n", $$1, $$2 }'
	@printf '\nVariables: PYTHON=%s (3.11 or newer), TORCH_INDEX=URL (where torch is taken from), ARGS (for pytest)\n' '$(PYTHON)'

# Where PYTHONDONTWRITEBYTECODE is set, each process that starts would compile Plait anew: a third of a second for a server.
setup: $(INSTALLED) ## Make .venv, install Plait into it, fetch the demo's model
	@$(BIN)/python -m compileall -q src tests
	@$(BIN)/plait models pull $(DEMO_MODEL)

$(INSTALLED): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo 'Plait needs Python 3.11 or newer: make PYTHON=/path/to/python setup' >&2; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(if $(TORCH_INDEX),$(PIP) --index-url '$(TORCH_INDEX)' --constraint constraints.txt torch)
	$(PIP) --constraint constraints.txt --editable '.[all,dev,cookbook]'
	$(PIP) --no-deps '$(COOKBOOK)'
	@touch $@

demo: setup ## Train three tasks at once; fails unless each task's held-out accuracy rises by 0.25
	$(BIN)/python -m plait.cli.main run examples/demo.toml --check-gain 0.25

test: setup ## Run all tests
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(TEST_PROCESSES) --dist loadfile --no-loadscope-reorder $(ARGS)

test-vllm: setup ## Run the tests of rollouts by vLLM, which is installed into an environment of its own (3.4 GB)
	test -x .bench-peers/vllm/bin/python || bash benchmarks/peers/install.sh vllm
	.bench-peers/vllm/bin/python -m pip --disable-pip-version-check --quiet install --no-deps --editable .
	PLAIT_VLLM_PYTHON=$(CURDIR)/.bench-peers/vllm/bin/python $(BIN)/python -m pytest tests/engine/test_vllm.py $(ARGS)

check: $(INSTALLED) ## Format, lint, types, order of imports
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/python -m pytest tests/test_import_order.py

format: $(INSTALLED) ## Format the code and mend what the linter can
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

bench: setup ## Run every benchmark in its quick form
	$(BIN)/python -m benchmarks.engine --quick
	$(BIN)/python -m benchmarks.train_step --quick
	$(BIN)/python -m benchmarks.marlaas --quick
	$(BIN)/python -m benchmarks.service --quick
	$(BIN)/python -m benchmarks.seer --quick
	$(BIN)/python -m benchmarks.drafting --quick
	$(BIN)/python -m benchmarks.concurrency --quick
	$(BIN)/python -m benchmarks.hrrs --quick
	$(BIN)/python -m benchmarks.placement --quick
	$(BIN)/python -m benchmarks.plexrl --quick
	$(BIN)/python -m benchmarks.state --quick

bench-peers: setup ## Install the systems to compare with, each in an environment of its own
	bash benchmarks/peers/install.sh

cookbook: $(INSTALLED) ## Run recipes of tinker-cookbook, unmodified and offline, against plait serve
	$(BIN)/python -m cookbook.run

docs: $(INSTALLED) ## Check the documentation: links lead somewhere, examples run
	$(BIN)/python -m pytest tests/docs

clean: ## Remove caches; .venv and runs stay
	rm -rf .mypy_cache .ruff_cache .pytest_cache .hypothesis build
	find . -name __pycache__ -type d -not -path './$(VENV)/*' -prune -exec rm -rf {} +
