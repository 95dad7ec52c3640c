# `make demo` and `make test` each work alone on a fresh clone: they create .venv, install once, and run.
PYTHON ?= python3
.DEFAULT_GOAL := demo
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

# Real data for tests and benchmarks, where it is; everything also works without.
ifneq ($(wildcard ../shared/data),)
export UNSEEN_DATA ?= $(abspath ../shared/data)
endif

.PHONY: help demo test pytest torture browser lint docs benchmark clean

help:
	@echo "make demo       train on embedded data with and without the method, compare, write a report"
	@echo "make test       lint and run the tests"
	@echo "make torture    fail every write, fsync and rename of train, save, adapt, evaluate and report in turn"
	@echo "                (full disk, kill, interrupt; again during the recovery; several seeds; kill -9 of real"
	@echo "                processes) and check that old or new files are whole; read thousands of damaged files; half an hour"
	@echo "make lint       ruff, mypy, import-linter"
	@echo "make pytest     the tests without the linters"
	@echo "make docs       build the site into site/"
	@echo "make benchmark  measure the cost of a training step"
	@echo "make clean      remove what the others have made"

demo: $(READY)
	$(BIN)/unseen demo

# Both installations at once, then the linters beside the tests.
test:
	$(MAKE) --no-print-directory --jobs 2 $(READY) browser
	$(MAKE) --no-print-directory --jobs 2 lint pytest

pytest: $(READY)
	$(BIN)/python -m pytest --numprocesses auto --dist worksteal

# All points of failure and more seeds; `make test` takes a sample of them. See `make help`.
torture: $(READY)
	UNSEEN_TORTURE=1 $(BIN)/python -m pytest --numprocesses auto tests/test_faults.py tests/test_files.py
	UNSEEN_EXAMPLES=2000 $(BIN)/python -m pytest --numprocesses auto tests/data/test_reader_properties.py tests/test_parser_properties.py

# The tests of the HTML report open it in a real browser; where none can be installed they are skipped.
browser:
	@command -v chromium >/dev/null || command -v google-chrome >/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get -qq update && DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends chromium; } \
	  >/dev/null 2>&1 || echo "no chromium here: the report's browser tests will be skipped"

lint: $(READY)
	$(BIN)/ruff check src tests benchmarks examples docs/hooks.py docs/figures
	$(BIN)/ruff format --check src tests benchmarks examples docs/hooks.py docs/figures
	$(BIN)/mypy
	$(BIN)/lint-imports

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict
	@echo "site/index.html is the beginning; with a server it can be searched: $(BIN)/python -m http.server -d site"

benchmark: $(READY)
	$(BIN)/python benchmarks/step_cost.py

$(READY): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile -c constraints.txt -e ".[dev]"
	@# pip compiles on one core. Some packages hold files for newer versions of Python, an error here.
	$(BIN)/python -m compileall -q -j 0 $(VENV)/lib >/dev/null || true
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache demo site
