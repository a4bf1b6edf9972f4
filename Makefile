# One command each. Nothing global is needed beyond a Python of 3.11 or newer with its venv module.
#
#   make demo       see a fork happen, and be caught (any terminal, under a minute the first time)
#   make run        the proxy; ARGS="--upstream http://127.0.0.1:9000" or a file: ARGS="--config my.yaml"
#   make test       the default test set; ARGS="-k relay" narrows it, ARGS=--cov adds the engine's coverage
#   make lint       ruff check, ruff format --check, mypy --strict
#   make scenarios  the wire scenarios alone: scripted ends around the real process
#   make peers      real MCP servers and clients, set up under .peers/ (needs node >= 22, else brings its own)
#   make ops        alerts and dashboards on a real Prometheus, the page in Chromium, nginx, HAProxy and Caddy, deployment files (Debian, root)
#   make image-test builds the container image without a container engine, and runs it (Debian, root; minutes)
#   make soak       ten minutes of load whose truth is known: forks found, false alarms, bytes, memory; ARGS=--faults
#   make fuzz       the parsers and the whole path under bytes nobody meant, coverage-guided; SECONDS=60 each, ARGS=sse for one
#   make sbom       build/sbom.json, and the licences of what the proxy runs on
#   make audit      known vulnerabilities of it, where a database can be reached
#   make bench      what the proxy costs on this machine, beside nginx and HAProxy; ARGS=peers: beside MCP proxies of Python
#   make clean      remove what these made

.DEFAULT_GOAL := help
.PHONY: help demo run test lint format scenarios peers ops image-test soak fuzz sbom audit bench clean

VENV := .venv
BIN := $(VENV)/bin
ARGS ?=

# The first interpreter that is new enough and can make an environment; a pyenv shim may exist and not work.
PYTHONS := python3.13 python3.12 python3.11 python3.14 python3
PYTHON ?= $(shell for p in $(PYTHONS); do \
	  $$p -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1 && { echo $$p; break; }; \
	done)
PIP_INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt

help:
	@sed -n '3,17s/^# *//p' Makefile

$(BIN)/python:
	@test -n "$(PYTHON)" || { \
	  echo "forkwatch needs Python 3.11 or newer with its venv module, and found none." >&2; \
	  echo "Debian and Ubuntu: apt install python3-venv. Or name one: make PYTHON=/path/to/python3.12 $(MAKECMDGOALS)" >&2; \
	  exit 1; }
	@echo "forkwatch: making $(VENV) with $$($(PYTHON) --version)" >&2
	@$(PYTHON) -m venv $(VENV)

# A stamp for each set of packages: nothing is installed twice while these two files stay as they are.
$(VENV)/.demo-ready: pyproject.toml constraints.txt | $(BIN)/python
	@echo "forkwatch: installing the proxy and the official MCP SDK for the demo into $(VENV) (once)" >&2
	@$(PIP_INSTALL) -e '.[demo]'
	@touch $@

$(VENV)/.dev-ready: pyproject.toml constraints.txt | $(BIN)/python
	@echo "forkwatch: installing the proxy and the developers' tools into $(VENV) (once)" >&2
	@$(PIP_INSTALL) -e '.[dev]'
	@touch $@ $(VENV)/.demo-ready

demo: $(VENV)/.demo-ready
	@$(BIN)/forkwatch demo $(ARGS)

run: $(VENV)/.demo-ready
	@$(BIN)/forkwatch run $(ARGS)

test: $(VENV)/.dev-ready
	@$(BIN)/python -m pytest $(ARGS)

lint: $(VENV)/.dev-ready
	@$(BIN)/ruff check .
	@$(BIN)/ruff format --check .
	@$(BIN)/mypy

format: $(VENV)/.dev-ready
	@$(BIN)/ruff check --fix .
	@$(BIN)/ruff format .

scenarios: $(VENV)/.dev-ready
	@$(BIN)/python -m pytest tests/scenarios $(ARGS)

peers: $(VENV)/.dev-ready
	@PYTHON="$(PYTHON)" tests/peers/setup.sh
	@$(BIN)/python -m pytest tests/peers -m peers $(ARGS)

# Installing Debian's packages would start their services as well; policy-rc.d keeps them from it. What cannot be
# installed here is skipped by the tests, which say what they miss.
ops: $(VENV)/.dev-ready
	@{ command -v promtool && command -v amtool; } >/dev/null || tests/dashboards/setup.sh
	@cd tests/dashboards/grafana && { test -d node_modules || ! command -v npm >/dev/null || \
	  npm ci --ignore-scripts --no-audit --no-fund --loglevel=error >&2; }
	@tests/packaging/setup.sh ops
	@$(BIN)/python -c 'import playwright' 2>/dev/null || $(PIP_INSTALL) -e '.[browser]'
	@$(BIN)/python -m pytest tests -m ops -rs $(ARGS)

image-test: $(VENV)/.dev-ready
	@tests/packaging/setup.sh image
	@$(BIN)/python -m pytest tests/packaging -m image -rs $(ARGS)

soak: $(VENV)/.dev-ready
	@$(BIN)/python -m tests.load --seconds 600 --streams 2000 --seed 1 $(ARGS)

fuzz:
	@test -x .fuzz/venv/bin/python || $(PYTHON) -m venv .fuzz/venv
	@.fuzz/venv/bin/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]' atheris==3.0.0
	@nice .fuzz/venv/bin/python -m tests.fuzz --seconds $(or $(SECONDS),60) $(ARGS)

sbom: $(VENV)/.dev-ready
	@tests/supply/setup.sh
	@$(BIN)/python -m tests.supply.sbom

audit: $(VENV)/.dev-ready
	@tests/supply/setup.sh
	@$(BIN)/python -m tests.supply.audit $(ARGS)

bench: $(VENV)/.dev-ready
	@$(BIN)/python -m tests.bench $(ARGS)

clean:
	rm -rf $(VENV) .peers .bench .fuzz build *.egg-info .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
