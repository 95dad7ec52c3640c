# `make demo` and `make test` each work alone on a fresh clone: they create .venv, install once, and run.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

# Real data for tests and benchmarks, where it is; everything also works without.
ifneq ($(wildcard ../shared/data),)
export UNSEEN_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test lint benchmark clean

demo: $(READY)
	$(BIN)/unseen demo

test: lint
	$(BIN)/python -m pytest

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks examples
	$(BIN)/ruff format --check src tests benchmarks examples
	$(BIN)/mypy

benchmark: $(READY)
	$(BIN)/python benchmarks/step_cost.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache demo
