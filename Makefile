# Everything works from a clean clone with Python 3.11 (or newer), make and pip's registry.
PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: setup demo test lint docs bench fuzz clean

setup: $(READY)

$(READY): pyproject.toml
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --editable ".[all,dev,docs]"
	touch $(READY)

demo: $(READY)
	$(BIN)/mgcap demo --out demo-output

test: $(READY)
	$(BIN)/python -m pytest -n 2 --dist worksteal -rs

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo

docs: $(READY)
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet

bench: $(READY)
	$(BIN)/mgcap bench --out benchmarks/results/paper
	$(BIN)/mgcap bench --preset compact --images 8 --out benchmarks/results/compact
	$(BIN)/python benchmarks/memory.py --csv benchmarks/results/memory.csv
	$(BIN)/python benchmarks/head.py --csv benchmarks/results/head.csv

# Mutated files against everything that reads files; what does harm is kept in tests/attacks/corpus.
MINUTES ?= 10
fuzz: $(READY)
	$(BIN)/python -m tests.attacks.fuzz --minutes $(MINUTES)

clean:
	rm -rf $(VENV) demo-output
