# make demo    virtual environment, install, run the main job on the embedded default, write report.html
# make test    the same environment with everything the tests need, then the tests
# make check   lint, types, and the quick half of the unit tests and doctests, for daily work
# make nightly the tests with the cases that make test leaves out, every bad input, 10,000 mutated files, every kill
# make lint    ruff and mypy
# make docs    the site, in site/: open site/index.html
# make clean   remove the environment and everything generated

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt
WORKERS ?= 2

# A stamp says what is installed; it is older than a changed pyproject.toml, and then pip runs again.
CORE := $(VENV)/.installed-core
FULL := $(VENV)/.installed-full

ARGS ?=

# Tests start hundreds of processes; each would compile our sources and the tests anew.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check quick nightly lint docs clean

demo: $(CORE)
	$(BIN)/intertwine demo

test: $(FULL)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal $(ARGS)

check: $(FULL)
	$(MAKE) --no-print-directory -j2 -O lint quick

quick: $(FULL)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal -m 'not slow' tests/unit tests/rules $(ARGS)

nightly: $(FULL)
	$(BIN)/python -m pytest -n $(WORKERS) --dist worksteal --all $(ARGS)
	$(BIN)/python -m tests.hostile --mutations 10000
	$(BIN)/python -m tests.crash

lint: $(FULL)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check src tests benchmarks scripts
	$(BIN)/mypy

docs: $(CORE)
	$(PIP) -e '.[docs]'
	$(BIN)/mkdocs build --quiet

$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "intertwine needs Python 3.11 or newer; set PYTHON=")'
	$(PYTHON) -m venv $(VENV)

$(CORE): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e .
	touch $@

$(FULL): pyproject.toml constraints.txt | $(BIN)/python
	$(PIP) -e '.[vision,text,rl,train,onnx,distributed,dev]'
	touch $@ $(CORE)

clean:
	rm -rf $(VENV) report.html site .pytest_cache .mypy_cache .ruff_cache .hypothesis src/*.egg-info
