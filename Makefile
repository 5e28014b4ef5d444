# Every target does its own set-up: a virtual environment and what it needs inside it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin

.PHONY: demo test lint bench docs reproduce format clean

demo: $(VENV)/core.stamp  ## install the package, run the main job, write report.html
	$(BIN)/densecal demo

test: $(VENV)/dev.stamp browser  ## install the development extras, run every test and every docstring's example
	$(BIN)/python -m pytest -n 2 tests src reproduction --doctest-modules

lint: $(VENV)/dev.stamp  ## formatting, lint rules, types
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy

bench: $(VENV)/dev.stamp  ## measure, print and write benchmarks/RESULTS.md
	$(BIN)/python benchmarks/run.py

docs: $(VENV)/dev.stamp  ## build the site into site/, strictly
	$(BIN)/python docs/build.py

reproduce: $(VENV)/dev.stamp  ## make the paper's tables from the measurements in results/ and check all committed ones
	$(BIN)/python -m reproduction all --check -o runs/reproduce

format: $(VENV)/dev.stamp
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

clean:
	rm -rf $(VENV) site report.html

# The browser tests need Chromium; where it cannot be installed they are skipped with that reason.
.PHONY: browser
browser:
	@command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && \
	    apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || \
	  echo "No Chromium found: the browser tests will be skipped."

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(BIN)/pip install --quiet --upgrade pip

$(VENV)/core.stamp: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet --editable .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/bin/python pyproject.toml
	$(BIN)/pip install --quiet --editable ".[dev]"
	@touch $@ $(VENV)/core.stamp
