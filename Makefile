# The verbs of the lab. `make` alone lists them.
.DEFAULT_GOAL := help
PY := .venv/bin/python

help: ## Show the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-10s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## Reproduce the main incident on an embedded server (three minutes) and write a report
	@bin/lab run key-growth

up: ## Look at the machine, start the whole stack on Docker, say where things are (COMPOSE_PROFILES=valkey,keydb for more)
	@python3 -m lab.up

down: ## Stop the stack and remove what it left: containers, volumes, network
	docker compose --profile valkey --profile keydb --profile distributed down --volumes --remove-orphans

test: venv ## Everything that needs no Docker
	$(PY) -m pytest

test-compose: venv ## The stack on a real Docker Engine, with stand-in images where no image registry is reachable
	$(PY) -m tests.compose.engine $(PY) -m pytest tests/compose

soak: venv ## The scene on Docker, held at its edge for ten minutes: does memory grow, does the edge wander?
	$(PY) -m tests.compose.engine $(PY) -m bench.scene --soak 10

check: venv ## Lint, formatting and types
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy

bench: venv ## Ratios against raw redis-py, redis-benchmark and a bare pipeline
	@for name in cache_get fill index_invalidation index_memory; do $(PY) -m bench.$$name || exit; done

ten: venv ## Ten quick runs of key-growth in a row, as a table
	$(PY) -m bench.repeat

docs: venv ## Renew the figures, tables and plots of the pages; from new runs: make docs RUNS=runs/...
	$(PY) -m lab.docs "$(RUNS)"

lock: ## Renew requirements.lock from requirements.in (needs uv)
	uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
		requirements.in --output-file requirements.lock

venv:
	@bin/lab --bootstrap

.PHONY: help demo up down test test-compose soak check bench ten docs lock venv
