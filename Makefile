# Everything a clone needs is Python 3.11+ and make. The first target that needs packages
# makes .venv; a stamp file remembers it, so the next call starts at once.
PYTHON ?= python3
PORT ?= 8000
HOLDFAST_HOME ?= .holdfast
# Two more than cores: tests wait for other processes, receivers and leases.
WORKERS ?= 4
ARGS ?=

BIN := .venv/bin
INSTALL := -m pip install --quiet --disable-pip-version-check
LOCK := requirements/locked.txt
GENERATOR := requirements/client-generator.txt
COMPILE := .cache/uv/bin/uv pip compile --quiet --upgrade --no-header --no-annotate --python-version 3.11 pyproject.toml
# What rests on dependencies: a third of a whole run's time.
VERSION_TESTS := tests/unit tests/contract tests/copying tests/kit tests/operations tests/http tests/cli tests/export tests/providers tests/simulators

.DEFAULT_GOAL := help
.PHONY: help run test test-lowest test-newest lock check format bench bench-quick system-packages screenshots clean

help: ## list the targets
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "  make %-16s %s\n", $$1, $$2 }' $(MAKEFILE_LIST)

run: .venv/.stamp-run ## play the demo (PORT=8000, HOLDFAST_HOME=.holdfast)
	HOLDFAST_HOME="$(HOLDFAST_HOME)" exec $(BIN)/holdfast demo --port "$(PORT)"

test: .venv/.stamp-dev system-packages ## run every test on every engine (ARGS="-k name" narrows)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --reruns 1 --rerun-show-tracebacks -rR $(ARGS)

test-lowest: system-packages ## run the tests of store, kit and surfaces with the lowest versions that pyproject.toml allows
	$(call with_versions,lowest,--constraint requirements/lowest.txt)

test-newest: system-packages ## the same with the newest
	$(call with_versions,newest,--upgrade --upgrade-strategy eager)

define with_versions
$(PYTHON) -m venv .cache/venv-$(1)
.cache/venv-$(1)/bin/python $(INSTALL) $(2) --editable '.[dev]'
.cache/venv-$(1)/bin/python $(INSTALL) --no-deps --requirement $(GENERATOR)
.cache/venv-$(1)/bin/python -m pytest -n $(WORKERS) --dist worksteal --reruns 1 --rerun-show-tracebacks -rR $(VERSION_TESTS) $(ARGS)
endef

lock: ## choose the versions in requirements/ anew
	$(PYTHON) -m venv .cache/uv
	.cache/uv/bin/python $(INSTALL) uv
	$(COMPILE) --universal --extra dev --output-file $(LOCK)
	$(COMPILE) --resolution lowest-direct --extra firestore --extra otel --extra postgres --output-file .cache/lowest.txt
	$(COMPILE) --extra dev --constraint .cache/lowest.txt --output-file requirements/lowest.txt

check: .venv/.stamp-dev ## lint, format, types, import rules
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

format: .venv/.stamp-dev ## rewrite the code in the project's format
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/.stamp-dev ## measure against raw driver loops, into bench/out/
	$(BIN)/python -m bench

bench-quick: .venv/.stamp-dev ## the same with small numbers
	$(BIN)/python -m bench --quick

system-packages: ## install Chromium, PgBouncer, axe-core, miniflare and payloads of GitHub for the tests, where that can be done unasked (root on Debian)
	@missing=""; \
	command -v chromium-headless-shell >/dev/null 2>&1 || missing="chromium-headless-shell fonts-dejavu-core"; \
	PATH="$$PATH:/usr/sbin" command -v pgbouncer >/dev/null 2>&1 || missing="$$missing pgbouncer"; \
	command -v npm >/dev/null 2>&1 || missing="$$missing npm"; \
	test -z "$$missing" \
	|| { test "$$(id -u)" = 0 && command -v apt-get >/dev/null 2>&1 && apt-get update -qq \
	     && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing >/dev/null; } \
	|| echo "some tests need what is not installed here, or are slower without (Debian: apt-get install $$missing)"
	@test -f .cache/node_modules/axe-core/axe.min.js && test -d .cache/node_modules/@octokit/webhooks-examples \
	&& test -d .cache/node_modules/miniflare \
	|| npm install --prefix .cache --no-save --silent --no-audit --no-fund axe-core@4 @octokit/webhooks-examples@7 miniflare@4 \
	|| echo "some tests need npm install --prefix .cache --no-save axe-core@4 @octokit/webhooks-examples@7 miniflare@4"

screenshots: .venv/.stamp-dev ## pictures of every page of the console, into build/screenshots/
	$(BIN)/python -m tests.browser.screenshots build/screenshots

clean: ## remove what the targets made (keeps HOLDFAST_HOME)
	rm -rf .venv build dist .cache .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis
	find src tests bench -name __pycache__ -type d -prune -exec rm -rf {} + 2>/dev/null || true

.venv/bin/python:
	$(PYTHON) -m venv .venv

.venv/.stamp-run: pyproject.toml $(LOCK) | .venv/bin/python
	$(BIN)/python $(INSTALL) --constraint $(LOCK) --editable '.[postgres,firestore]'
	@touch $@

.venv/.stamp-dev: pyproject.toml $(LOCK) $(GENERATOR) | .venv/bin/python
	$(BIN)/python $(INSTALL) --constraint $(LOCK) --editable '.[dev]'
	$(BIN)/python $(INSTALL) --no-deps --requirement $(GENERATOR)
	@touch $@ .venv/.stamp-run
