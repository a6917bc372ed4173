# `make run` and `make test` set up everything they need; the rest is for development.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: run test lint types imports unit soak fuzz bench scale audit lock clean

run: $(VENV)/.runtime
	$(BIN)/statehold serve

test: lint types imports unit

lint: $(VENV)/.dev
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(VENV)/.dev
	$(BIN)/mypy

imports: $(VENV)/.dev
	$(BIN)/lint-imports

unit: $(VENV)/.dev
	$(BIN)/pytest -m "not soak"

soak: $(VENV)/.fuzz
	$(BIN)/pytest -m soak -n 0 --timeout 0

# FUZZ_SECONDS for each target; what leads somewhere new is kept in build/fuzz.
FUZZ_SECONDS ?= 400
fuzz: $(VENV)/.fuzz
	$(BIN)/python -m tests.fuzz.guided --seconds $(FUZZ_SECONDS) --corpus build/fuzz

scale: $(VENV)/.dev
	$(BIN)/python -m bench.scale
	$(BIN)/python -m bench.scale --churn

bench: $(VENV)/.dev
	$(BIN)/python -m bench

# Known vulnerabilities of what is locked, as PyPI knows them; needs its full API. A skipped package is a failure.
audit: $(VENV)/.dev
	$(BIN)/uv tool run pip-audit@2.10.1 --strict --no-deps --disable-pip -r requirements.lock

lock: $(VENV)/.dev
	$(BIN)/uv pip compile pyproject.toml --extra build --universal --quiet --no-header --no-annotate --no-emit-index-url --output-file requirements.lock
	$(BIN)/uv pip compile pyproject.toml --extra build --extra dev --extra bench --extra otel --universal --quiet --no-header --no-annotate --no-emit-index-url --output-file requirements-dev.lock
	$(BIN)/uv pip compile pyproject.toml --extra build --extra fuzz --universal --quiet --no-header --no-annotate --no-emit-index-url --constraint requirements-dev.lock --output-file requirements-fuzz.lock

$(VENV)/.python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "Statehold needs Python 3.11 or newer; name one with PYTHON=..."; exit 1; }
	$(PYTHON) -m venv $(VENV)
	@touch $@

# Dependencies come from the lock alone, the build backend too; our own packages stay in this folder.
$(VENV)/.runtime: $(VENV)/.python requirements.lock pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@

$(VENV)/.dev: $(VENV)/.python requirements-dev.lock pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-dev.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/.runtime

$(VENV)/.fuzz: $(VENV)/.dev requirements-fuzz.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-fuzz.lock
	@touch $@

clean:
	rm -rf $(VENV) build dist .mypy_cache .pytest_cache .ruff_cache .hypothesis
