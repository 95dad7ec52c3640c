# `make demo` and `make test` each work alone on a fresh clone: they create .venv, install once, and run.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.installed

# Real data for tests and benchmarks, where it is; everything also works without.
ifneq ($(wildcard ../shared/data),)
export UNSEEN_DATA ?= $(abspath ../shared/data)
endif

.PHONY: demo test browser lint docs benchmark clean

demo: $(READY)
	$(BIN)/unseen demo

test: lint browser
	$(BIN)/python -m pytest --numprocesses auto

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
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e ".[dev]"
	touch $@

clean:
	rm -rf $(VENV) .pytest_cache .ruff_cache .mypy_cache demo site
