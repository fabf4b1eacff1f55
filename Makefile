# `make` says what there is. Every target builds or refreshes .venv by itself.

BIN := .venv/bin
SEED ?= 1
RUNS ?= 10000
MINUTES ?= 60
# One more than cores: many tests wait for processes that they started. `make test WORKERS=0` runs in one process, for a
# debugger.
WORKERS ?= $(shell expr $$(nproc) + 1)

.DEFAULT_GOAL := help
.PHONY: help setup demo test test-real cluster extras lint format bench soak clean

help: ## this list
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-9s %s\n", $$1, $$2 }' Makefile

setup:
	@scripts/setup

demo: setup ## two sites over an emulated WAN with 1, 2 and 4 links, a gateway killed, with verdicts
	$(BIN)/isthmus demo

test: lint ## lint, then the tests on all cores, but for the long ones
	$(BIN)/pytest -n $(WORKERS) --dist worksteal

test-real: ## long tests with real processes: kills, live runs, the demo
	@scripts/setup real
	@scripts/kafka
	$(BIN)/pytest -m real -n $(WORKERS) --dist worksteal

cluster: ## every command of the pipeline x every kind of Spark x every kind of place, as a table; half an hour
	@scripts/setup real
	$(BIN)/pytest -m "cluster or real" -n 0 tests/pipeline/test_cells.py

extras: setup ## the wheel with each extra, installed by pip into an empty environment
	scripts/extras

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

soak: setup ## the long explorations and simulated campaign over all examples; SEED=1 RUNS=10000 MINUTES=60 are the defaults
	$(BIN)/isthmus bench soak --seed $(SEED) --runs $(RUNS) --minutes $(MINUTES)

clean: ## removes caches and build output; keeps .venv and traces
	rm -rf build dist src/*.egg-info .hypothesis .import_linter_cache .mypy_cache .pytest_cache .ruff_cache
	find src tests -name __pycache__ -type d -prune -exec rm -rf {} +
