# The verbs of the lab. `make` alone lists them.
.DEFAULT_GOAL := help
PY := .venv/bin/python
# Files of tests side by side, three more than there are cores (half of the time a test waits for a process), in the
# order in which they stand. tests/conftest.py says which tests must run alone.
WORKERS := $(shell python3 -c "import os; print(min(6, 3 + (os.cpu_count() or 1)))")
SIDE_BY_SIDE := --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder
# Python keeps what it compiled, even where the environment forbids it: else each process that the tests start compiles
# the lab anew, and each of pytest's workers all tests (it then takes twice the CPU time to collect them).
unexport PYTHONDONTWRITEBYTECODE

help: ## Show the verbs
	@awk -F ':.*## ' '/^[a-z-]+:.*## / {printf "%-17s %s\n", $$1, $$2}' $(MAKEFILE_LIST)

demo: ## Reproduce the main incident on an embedded server (three minutes) and write a report
	@bin/lab run key-growth

up: ## Look at the machine, start the whole stack on Docker, say where things are (COMPOSE_PROFILES=valkey,keydb for more)
	@python3 -m lab.stacks.up

down: ## Stop the stack and remove what it left: containers, volumes, network
	docker compose --profile "*" down --volumes --remove-orphans

test: tools ## What needs neither Docker nor whole runs, in eight minutes
	$(PY) -m pytest $(SIDE_BY_SIDE) -m "not whole"

test-all: tools ## All that needs no Docker: every incident, whole scenes, blind seeds; some of it: ONLY=tests/console
	$(PY) -m pytest $(SIDE_BY_SIDE) $(ONLY)

test-compose: tools ## The story on a real Docker Engine, in eight minutes; stand-in images where no image registry is reachable
	$(PY) -m tests.compose.engine $(PY) -m pytest tests/compose -m "not whole"

test-compose-all: tools ## The same and the rest: every server, faults, traces, blind mode, replay
	$(PY) -m tests.compose.engine $(PY) -m pytest tests/compose

test-kubernetes: tools ## The chart on a real Kubernetes of one node, made for the tests (root on Debian, Go; not in .ci/run)
	$(PY) -m tests.kubernetes.cluster $(PY) -m pytest tests/kubernetes

mutate: ## Change the judging code in thousands of small ways: is each noticed by a test? (not in CI)
	@bin/lab --bootstrap checks mutate
	$(PY) -m mutmut run

soak: venv ## The scene on Docker, held at its edge for ten minutes: does memory grow, does the edge wander?
	$(PY) -m tests.compose.engine $(PY) -m bench.scene --soak 10

check: tools ## Lint, formatting, types, and who imports whom
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports --no-cache
	@$(PY) -m docs.pages.audit --due

bench: venv ## Ratios against raw redis-py, redis-benchmark and a bare pipeline
	@for name in cache_get fill index_invalidation index_memory; do $(PY) -m bench.$$name || exit; done

ten: tools ## Ten quick runs of key-growth in a row, as a table, and how far they agree
	$(PY) -m bench.repeat --claim p99-is-one-search

exam: venv ## The examination of bin/lab diagnose: every cause, unknown to it (two and a half hours)
	$(PY) -m bench.exam --write

faults: venv ## Is an accepted event lost, or an old value served, while parts fail, under every strategy?
	$(PY) -m bench.history --write

docs: venv ## Renew the figures, tables and plots of the pages; from new runs: make docs RUNS=runs/...
	$(PY) -m docs.pages "$(RUNS)"

lock: venv ## Renew the lock files from their .in, which machines have all packages, and the licences (needs uv)
	@for name in requirements-stack requirements requirements-checks requirements-mutate requirements-audit; do \
		uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
			$$name.in --output-file $$name.lock || exit; \
	done
	$(PY) -m docs.pages.wheels && $(PY) -m docs.pages.licences && $(PY) -m docs.pages

sbom: venv ## All packages of the lab and of the containers, as CycloneDX files in build/
	@bin/lab --bootstrap audit && mkdir -p build
	@for name in requirements requirements-stack; do \
		.venv/bin/cyclonedx-py requirements $$name.lock --output-reproducible --output-file build/$$name.cdx.json || exit; \
	done

audit: venv ## Known vulnerabilities in the packages, into docs/audit.json (needs a network; exit code 3 without)
	@bin/lab --bootstrap audit
	@$(PY) -m docs.pages.audit

pins: ## Renew the digests of the images in .env (needs a network)
	@python3 -m lab.stacks.pins

bundle: venv ## An archive for a room without a network: repository, wheels, images (SYSTEM=macos-arm64 IMAGES=no)
	@$(PY) -m lab.stacks.bundle $(if $(SYSTEM),--system $(SYSTEM)) $(if $(filter no,$(IMAGES)),--no-images)

room: venv ## Hand the archives of make bundle out to the room (PORT=8000)
	@$(PY) -m lab.stacks.room $(if $(PORT),--port $(PORT))

# A shell may have exported HOST, and then it means this machine: only what was typed counts.
room-cluster: venv ## A room on your Kubernetes cluster, and a page of addresses (N=40 VALUES=my.yaml HOST=lab.example INGRESS_CLASS=nginx)
	@$(PY) -m lab.stacks.room_cluster up --groups "$(N)" $(if $(VALUES),--values "$(VALUES)") \
		$(if $(filter command,$(origin HOST)),--host "$(HOST)") $(if $(INGRESS_CLASS),--ingress-class "$(INGRESS_CLASS)") \
		$(if $(INGRESS_NAMESPACE),--ingress-namespace "$(INGRESS_NAMESPACE)")

room-cluster-down: venv ## Remove that room from the cluster: releases and namespaces that make room-cluster made
	@$(PY) -m lab.stacks.room_cluster down

venv:
	@bin/lab --bootstrap

tools:
	@bin/lab --bootstrap checks

.PHONY: help demo up down test test-all test-compose test-compose-all test-kubernetes mutate soak check bench ten exam faults docs lock sbom audit pins bundle room room-cluster room-cluster-down venv tools
