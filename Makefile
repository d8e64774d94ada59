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

FIRST := demo up down test site bundle
help: ## Show the verbs
	@awk -F ':.*## ' -v first=" $(FIRST) " '/^[a-z-]+:.*## / { \
		line = sprintf("%-17s %s\n", $$1, $$2); \
		if (index(first, " " $$1 " ")) use = use line; else change = change line \
	} END { printf "%s\nTo change the lab:\n%s", use, change }' $(MAKEFILE_LIST)

demo: ## Reproduce the main incident on an embedded server (three minutes) and write a report
	@bin/lab run key-growth

up: ## Look at the machine, then docker compose up, in the background (COMPOSE_PROFILES=valkey,keydb for more)
	@python3 -m lab.scene.up

down: ## Stop the stack and remove what it left: containers, volumes, network
	@python3 -m lab.scene.up down

test: tools ## What needs neither Docker nor whole runs, in about five minutes
	$(PY) -m pytest $(SIDE_BY_SIDE) -m "not whole"

QUICK := tests/lab/claims tests/lab/results tests/lab/test_house.py tests/grafana
test-quick: tools ## What most edits need, in a minute: what computes and judges, dashboards
	$(PY) -m pytest $(SIDE_BY_SIDE) -m "not whole and not alone" $(QUICK)

test-all: tools ## All that needs no Docker: every incident, whole scenes, blind seeds; some of it: ONLY=tests/console
	$(PY) -m pytest $(SIDE_BY_SIDE) $(ONLY)

test-compose: tools ## The story on a real Docker Engine, in ten minutes or more; stand-in images where no image registry is reachable
	$(PY) -m tests.compose.engine $(PY) -m pytest tests/compose -m "not whole"

test-compose-all: tools ## The same and the rest: every server, faults, traces, blind mode, replay
	$(PY) -m tests.compose.engine $(PY) -m pytest tests/compose

test-kubernetes: venv ## The chart on a real Kubernetes of one node, by kind (Docker, an image registry, kubectl, Helm; not in .ci/run)
	deploy/kind.sh

mutate: ## Change the judging code in thousands of small ways: is each noticed by a test? (not in CI)
	@bin/lab --bootstrap checks mutate
	$(PY) -m mutmut run

soak: venv ## The scene on Docker, untouched for ten minutes with all keys: do p99 and events stay?
	$(PY) -m tests.compose.engine $(PY) -m bench.scene --hold 600

check: tools ## Lint, formatting, types, who imports whom, and the words of the guide
	$(PY) -m ruff check .
	$(PY) -m ruff format --check .
	$(PY) -m mypy
	.venv/bin/lint-imports --no-cache
	$(PY) -m pytest -q tests/docs/test_words.py

bench: venv ## Ratios against raw redis-py, redis-benchmark and a bare pipeline
	@for name in cache_get fill index_invalidation index_memory; do $(PY) -m bench.$$name || exit; done

ten: tools ## Ten quick runs of key-growth in a row, as a table, and how far they agree
	$(PY) -m bench.repeat --claim p99-is-one-search

exam: venv ## The examination of bin/lab diagnose: 300 scenes drawn by a seed (an hour and a half)
	$(PY) -m bench.exam --scenes 300 --seed 1 --write

faults: venv ## Is an accepted event lost, or an old value served, while parts fail, under every strategy?
	$(PY) -m bench.history --write

docs: venv ## Renew the figures, tables and plots of the pages; from new runs: make docs RUNS=runs/...
	$(PY) -m docs.pages "$(RUNS)"

SITE := build/site
site: tools ## The pages as a site, for build/site/index.html and the control page; a broken link or anchor fails
	@.venv/bin/sphinx-build --fail-on-warning --keep-going --fresh-env --write-all --quiet -c docs/site -d build/site-read . $(SITE)

drawing: ## What runs, as a picture, from docs/pictures/containers.dot (needs Graphviz: apt install graphviz)
	dot -Tsvg docs/pictures/containers.dot -o console/static/containers.svg

pictures: venv ## Photographs of dashboards, control page and a report: make pictures GRAFANA=URL CONTROL=URL (Chromium)
	@$(PY) -m docs.pages.pictures $(if $(GRAFANA),--grafana $(GRAFANA)) $(if $(CONTROL),--control $(CONTROL))

lock: venv ## Renew the lock files from their .in, and see that every machine has all packages (needs uv)
	@for name in stack lab checks mutate audit; do \
		uv pip compile --universal --generate-hashes --no-emit-index-url --no-header --python-version 3.11 \
			requirements/$$name.in --output-file requirements/$$name.lock || exit; \
	done
	@for machine in x86_64-manylinux_2_28:3.11 aarch64-manylinux_2_28:3.11 aarch64-apple-darwin:3.12 x86_64-apple-darwin:3.12; do \
		for python in $${machine#*:} 3.14; do \
			uv pip install --dry-run --quiet --target build/none --no-deps --only-binary :all: --require-hashes \
				--python-platform $${machine%:*} --python-version $$python --requirement requirements/lab.lock || exit; \
		done; \
	done

sbom: venv ## All packages of the lab and of the containers, as CycloneDX files in build/
	@bin/lab --bootstrap audit && mkdir -p build
	@for name in lab stack; do \
		.venv/bin/cyclonedx-py requirements requirements/$$name.lock --output-reproducible --output-file build/$$name.cdx.json || exit; \
	done

audit: venv ## Known vulnerabilities in the packages (needs a network)
	@bin/lab --bootstrap audit
	@curl --silent --output /dev/null https://api.osv.dev || { echo "audit: api.osv.dev, the database, cannot be reached" >&2; exit 3; }
	@.venv/bin/pip-audit --disable-pip --require-hashes --vulnerability-service osv --requirement requirements/lab.lock

licences: venv ## The licences of all packages; fails for one that pyproject.toml does not allow
	@bin/lab --bootstrap checks mutate audit
	@.venv/bin/pip-licenses

bundle: venv ## An archive for a room without a network: repository, wheels, images (SYSTEM=macos-arm64 IMAGES=no)
	@$(PY) -m lab.scene.bundle $(if $(SYSTEM),--system $(SYSTEM)) $(if $(filter no,$(IMAGES)),--no-images)

venv:
	@bin/lab --bootstrap

tools:
	@bin/lab --bootstrap checks

.PHONY: help demo up down test test-quick test-all test-compose test-compose-all test-kubernetes mutate soak check bench ten exam faults docs site drawing pictures lock sbom audit licences bundle venv tools
