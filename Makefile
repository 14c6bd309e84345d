# `make demo` and `make test` need Python 3.10 or newer and make, nothing else: the environment is made
# on the first call and kept until pyproject.toml changes. Another interpreter: make test PYTHON=python3.12

PYTHON ?= python3
VENV ?= .venv
# one worker more than there are cores: tests wait for processes that they start
WORKERS ?= $(shell $(PYTHON) -c 'import os; print(min(len(os.sched_getaffinity(0)), 8) + 1)' 2>/dev/null || echo 3)
PYTEST_FLAGS ?= -q -n $(WORKERS) --dist worksteal

# the build for CPUs: on Linux the plain one brings gigabytes of CUDA along
TORCH ?= torch==2.13.0$(if $(filter Linux,$(shell uname -s)),+cpu)
BENCH_FLAGS ?=
GRADBENCH_FLAGS ?=

BIN := $(VENV)/bin
BENCHMARKS := $(sort $(filter-out benchmarks/_%,$(wildcard benchmarks/*.py)))

.PHONY: demo test quick lint docs bench gradbench clean
.DEFAULT_GOAL := test

demo: $(VENV)/.installed-demo
	$(BIN)/python tutorials/train_digits.py

# workers and the processes of tests import the same files, which are compiled once where bytecode is kept
test quick: export PYTHONDONTWRITEBYTECODE :=

test: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(PYTEST_FLAGS)

# without what is marked slow: some tests of every package, for use while editing
quick: $(VENV)/.installed-test
	$(BIN)/python -m pytest $(PYTEST_FLAGS) -m "not slow"

lint: $(VENV)/.installed-test
	$(BIN)/ruff check .
	$(BIN)/mypy

# the site, into docs/_build/html; a warning is an error. Its examples are tests: tests/test_pages.py
docs: $(VENV)/.installed-docs
	rm -rf docs/_build docs/reference/api/generated
	$(BIN)/python -m sphinx -b html -W --keep-going -j auto docs docs/_build/html

# figures beside PyTorch and JAX into docs/, then those of single parts; BENCH_FLAGS=--help lists more
bench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.suite --report docs $(BENCH_FLAGS)
	$(BIN)/python -m benchmarks.in_pytorch --report docs
	$(BIN)/python -m benchmarks.generated --report docs
	@set -e; for script in $(BENCHMARKS); do echo "$$script"; $(BIN)/python $$script; done

# the evals of GradBench beside PyTorch and JAX, one thread; GRADBENCH_FLAGS=--modest for few sizes
gradbench: $(VENV)/.installed-bench
	$(BIN)/python -m benchmarks.gradbench.compare --report docs $(GRADBENCH_FLAGS)

clean:
	rm -rf $(VENV) build docs/_build docs/reference/api/generated *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 10))' || \
	  { echo "tvm_autodiff needs Python 3.10 or newer: make PYTHON=/path/to/python3"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' || \
	  { echo "$(PYTHON) has no venv module (Debian and Ubuntu: apt install python3-venv)"; exit 1; }
	$(PYTHON) -m venv $(VENV)

# the stamp is younger than pyproject.toml exactly when what it asks for is installed
$(VENV)/.installed-demo: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e '.[demo]'
	@touch $@

$(VENV)/.installed-test: pyproject.toml | $(BIN)/python
	$(BIN)/python -m pip install --quiet -e '.[demo,test]'
	@$(BIN)/python -c 'import torch' 2>/dev/null || $(BIN)/python -m pip install --quiet '$(TORCH)' || \
	  echo "pip finds no $(TORCH): tests of PyTorch are skipped (with another build: make test TORCH=torch)"
	@touch $@ $(VENV)/.installed-demo

$(VENV)/.installed-docs: $(VENV)/.installed-test
	$(BIN)/python -m pip install --quiet -e '.[docs]'
	@touch $@

$(VENV)/.installed-bench: $(VENV)/.installed-test
	@touch $@
