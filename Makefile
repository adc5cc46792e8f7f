# `make` alone lists the targets.
SHELL := /bin/bash
.DEFAULT_GOAL := help
VENV := .venv
BIN := $(VENV)/bin
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3.14 python3.15 python3; do \
	$$p -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null && { echo $$p; break; }; done)
PYTEST := $(BIN)/python -m pytest
CORES := $(shell getconf _NPROCESSORS_ONLN)
# Two for each processor: many tests wait for a server or a job. More than 16 only wait for the disk.
WORKERS ?= $(shell echo $$(($(CORES) < 8 ? 2 * $(CORES) : 16)))
# tests/conftest.py chooses the groups and their order.
PARALLEL := -n $(WORKERS) --dist loadgroup --no-loadscope-reorder
# Every worker would compile all tests again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: help quickstart compiled setup portal screenshots test test-fast test-large coverage mutants chaos lint docs docs-walk portal-types bench dist clean

help: ## list the targets
	@grep -hE '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | awk -F ':.*## ' '{printf "  make %-12s %s\n", $$1, $$2}'

# The environment is updated when pyproject.toml or the version changes.
$(VENV)/.run: pyproject.toml src/paiprotocol/_version.py
	@test -n "$(PYTHON)" || { echo "Python 3.11 or newer is needed and was not found: apt-get install python3"; exit 1; }
	@$(PYTHON) -c 'import venv, ensurepip' 2>/dev/null || { \
	  if [ "$$(id -u)" = 0 ]; then apt-get update -q && apt-get install -y -q python3-venv; \
	  else echo "Python's venv module is missing. Type: sudo apt-get install python3-venv"; exit 1; fi; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.run
	@$(BIN)/python -m pip install -q --disable-pip-version-check -e '.[dev]'
	@touch $@

# Like an installed package: where Python may not write bytecode, every process would compile all modules again.
compiled: $(VENV)/.dev $(VENV)/.tests
	@$(BIN)/python -m compileall -q -j $(CORES) src

# pytest changes the assertions of each file, which takes a quarter of a minute in all. The workers start together:
# each of them would do it for every file. What cannot be imported they report.
$(VENV)/.tests: $(VENV)/.dev $(shell find tests -name '*.py')
	@echo tests/openpaisdk tests/paicluster tests/paiprotocol tests/pairuntime tests/system | \
	  xargs -n 1 -P $(CORES) $(PYTEST) -q --collect-only -p no:cacheprovider >/dev/null || true
	@touch $@

setup: $(VENV)/.dev ## create the virtual environment with everything a developer needs

quickstart: $(VENV)/.run ## set up and run a first training job on the embedded cluster
	@cd examples/quickstart && PATH="$(CURDIR)/$(BIN):$$PATH" pai sub -a local --follow -- python train.py
	@if $(MAKE) -s portal; then echo "The web portal (the link signs you in for two minutes; pai open makes another):"; \
	  $(BIN)/pai open -a local --print; \
	  else echo "Everything but the web portal works; make portal tries again."; fi
	@echo "pai is $(BIN)/pai. Next, type: source $(BIN)/activate && pai sub --follow -- echo hello"

portal: $(VENV)/.run ## build the web portal, which a cluster of this checkout serves at /
	@$(BIN)/python portal/bundle_build.py --install-node

SCREENSHOTS ?= /tmp/portal-screenshots
screenshots: $(VENV)/.dev ## write every page of the portal as a picture to SCREENSHOTS (outside the repository)
	@PORTAL_SCREENSHOTS=$(SCREENSHOTS) $(PYTEST) tests/system/portal/test_appearance.py
	@echo "The pictures are in $(SCREENSHOTS)."

# Each uses one processor; the longest begins first.
LINTS := lint-types lint-portal lint-types-darwin lint-types-win32 lint-style
.PHONY: $(LINTS)
lint: $(VENV)/.dev ## format check, lint, types (Linux, macOS, Windows), import contracts, Python 3.6 check of the runtime
	@$(MAKE) --no-print-directory -j $(CORES) $(LINTS)

lint-types: $(VENV)/.dev
	@$(BIN)/mypy

lint-types-darwin lint-types-win32: lint-types-%: $(VENV)/.dev
	@$(BIN)/mypy --platform $* --cache-dir .mypy_cache/$* -p openpaisdk -p paiprotocol -p pairuntime.transport

lint-style: $(VENV)/.dev
	@$(BIN)/ruff format --check src tests bench release
	@$(BIN)/ruff check src tests bench release
	@$(BIN)/lint-imports
	@$(BIN)/vermin -q -t=3.6- --violations --no-tips src/pairuntime

lint-portal: $(VENV)/.dev
	@$(BIN)/python -m paicluster.api.portal_types --check portal/src/api_types.ts
	@$(BIN)/python portal/checks.py lint

test-fast: compiled ## the tests that are quick and need no outside service (about five minutes)
	@$(PYTEST) $(PARALLEL) -m "not slow and not service"

test: lint compiled ## everything: lint, types, import contracts, the whole suite
	@$(PYTEST) $(PARALLEL)
	@cd tests && ../$(BIN)/python -m unittest discover

# How many small files, and how large a file.
LARGE_FILES ?= 1000000
LARGE_RECORD_BYTES ?= 2357198848
test-large: compiled ## packs of LARGE_FILES files, and of one of LARGE_RECORD_BYTES, with their figures; many server kills; random requests; training frameworks; Kubernetes (built once)
	@LARGE_FILES=$(LARGE_FILES) LARGE_RECORD_BYTES=$(LARGE_RECORD_BYTES) $(PYTEST) -s tests/large

coverage: compiled ## branch coverage of test-fast, servers and commands included
	@$(BIN)/python -m coverage erase
	-@$(BIN)/python -m coverage run -m pytest $(PARALLEL) -m "not slow and not service"
	@$(BIN)/python -m coverage combine -q && $(BIN)/python -m coverage report --skip-covered

AREA ?= scheduler
mutants: compiled ## how many random changes of AREA (scheduler, transitions, completion, retries) the tests notice
	@PYTHONPATH=tests $(BIN)/python -m support.mutation.run $(AREA)

MINUTES ?= 30
ENGINE ?= process
chaos: compiled ## clients and faults for MINUTES on ENGINE (process, container, slurm); SEED=N repeats a run; needs root
	@PYTHONPATH=tests $(BIN)/python -m chaos --engine $(ENGINE) --seconds $$(($(MINUTES) * 60)) $(if $(SEED),--seed $(SEED)) $(CHAOS)

docs: $(VENV)/.dev ## write the pages that are generated from the code
	@$(BIN)/python -m openpaisdk.cli.reference > docs/command-line-references.md
	@$(BIN)/python -m openpaisdk.paddlecloud.reference > docs/paddlecloud-references.md
	@$(BIN)/python -m openpaisdk.cli.exit_code_reference docs/troubleshooting.md
	@$(BIN)/python -m paicluster.api.route_reference docs

portal-types: $(VENV)/.dev ## write the portal's types of the REST API, from its OpenAPI document
	@$(BIN)/python -m paicluster.api.portal_types portal/src/api_types.ts

# Forwards and backwards: no page may be in the way of another.
docs-walk: compiled ## read all pages of the documentation on one cluster and home, in two orders
	@$(PYTEST) tests/system/documentation/test_pages.py
	@PAGES_ORDER=reversed $(PYTEST) tests/system/documentation/test_pages.py

bench: compiled ## print one table of our figures against a reference
	@$(BIN)/python -m bench

dist: $(VENV)/.dev ## build wheel, source distribution, SBOM and checksums into dist/, the same bytes for a commit
	@$(BIN)/python release/build_release.py dist

clean: ## remove build outputs
	rm -rf $(VENV) dist build .mypy_cache .ruff_cache .pytest_cache .import_linter_cache .hypothesis
	find src tests bench -name __pycache__ -prune -exec rm -rf {} +
