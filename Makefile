# `make` says what there is. Every target builds or refreshes .venv by itself.

BIN := .venv/bin
SEED ?= 1
RUNS ?= 2000
# Every core that this machine lets us use. `make test WORKERS=0` runs in one process, for a debugger.
WORKERS ?= logical

.DEFAULT_GOAL := help
.PHONY: help setup demo test lint format bench soak clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z]+:.*## / { printf "make %-8s %s\n", $$1, $$2 }' Makefile

setup:
	@scripts/setup

demo: setup ## a causal group over real TCP, under load, through a kill -9, with verdicts
	$(BIN)/isthmus demo

test: lint ## lint, then all tests on all cores
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

lint: setup ## ruff, mypy and the import contracts
	$(BIN)/ruff check
	$(BIN)/ruff format --check
	$(BIN)/mypy --strict
	$(BIN)/lint-imports --no-logo

format: setup ## lets ruff mend what it can
	$(BIN)/ruff check --fix
	$(BIN)/ruff format

bench: setup ## all benchmarks
	$(BIN)/isthmus bench

soak: setup ## a long simulated campaign; SEED=1 RUNS=2000 are the defaults
	$(BIN)/isthmus simulate examples/fifo-group.toml --seed $(SEED) --runs $(RUNS)
	$(BIN)/isthmus simulate examples/causal-group.toml --seed $(SEED) --runs $(RUNS)
	$(BIN)/isthmus simulate examples/total-group.toml --seed $(SEED) --runs $(RUNS)

clean: ## removes caches and build output; keeps .venv and traces
	rm -rf build dist src/*.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
