# Everything runs in .venv, from the exact versions in constraints.txt.
# Where an index offers a CPU build of torch, pip prefers it; PIP_EXTRA_INDEX_URL names further indices.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
SOURCE := src tests benchmarks
# The machine has few cores and tests run side by side: one thread each.
ONE_THREAD := OMP_NUM_THREADS=1 MKL_NUM_THREADS=1

.PHONY: help install demo demo-images test imports lint format docs tables bench clean

help:
	@echo "make install   make .venv with the command 'hcdc' in it"
	@echo "make demo      condense the embedded graph, compare, search it for a minute, offline; writes demo-out"
	@echo "make demo-images  the same with handwritten digits; writes demo-out/images/report.html"
	@echo "make test      import rules and the fast test suite"
	@echo "make lint      ruff and mypy"
	@echo "make format    rewrite the source in the house style"
	@echo "make docs      the documentation as a site in build/site; fails on dead links and remote references"
	@echo "make tables    tables and figures of the documents, from all records"
	@echo "make bench     speed and memory; writes benchmarks/records"
	@echo "make clean     remove .venv and caches"

install: $(STAMP)

# torch comes first and from its pin: a looser requirement could take a build with gigabytes of CUDA.
$(STAMP): pyproject.toml constraints.txt
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet -c constraints.txt torch
	$(BIN)/python -m pip install --quiet -c constraints.txt -e '.[dev]'
	touch $@

demo: install
	$(BIN)/hcdc demo

demo-images: install
	$(BIN)/hcdc demo --images

test: install imports
	$(ONE_THREAD) $(BIN)/python -m pytest -n 2 --dist worksteal -m 'not slow'

imports: install
	$(BIN)/lint-imports

lint: install
	$(BIN)/ruff check $(SOURCE)
	$(BIN)/ruff format --check $(SOURCE)
	$(BIN)/mypy

format: install
	$(BIN)/ruff check --fix $(SOURCE)
	$(BIN)/ruff format $(SOURCE)

docs: install
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

tables: install
	$(BIN)/python -m hcdc.experiments.tables

bench: install
	for file in $(filter-out benchmarks/against.py, $(wildcard benchmarks/*.py)); do echo "== $$file"; $(BIN)/python $$file || exit 1; done

clean:
	rm -rf $(VENV) build dist src/*.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis .import_linter_cache
