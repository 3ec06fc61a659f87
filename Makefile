.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
STAMP := $(VENV)/.installed

.PHONY: help demo test lint types docs bench clean

help: ## Show this list
	@grep -E '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 12

$(STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(STAMP) ## Grade six responses and make the report page: no key, no network service
	$(BIN)/rubric-integrations grade examples/quarterly_margin/rubric.yaml examples/quarterly_margin/responses.jsonl --out run.jsonl --overwrite
	$(BIN)/rubric-integrations report run.jsonl --output report.html

test: $(STAMP) ## Run the tests
	$(BIN)/python -m pytest

lint: $(STAMP) ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## Check types, strictly, in the package and the tests
	$(BIN)/basedpyright

docs: $(STAMP) ## Build the documentation into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

bench: $(STAMP) ## Measure what the library adds around a model
	$(BIN)/python benchmarks/speed.py
	$(BIN)/python benchmarks/prefix.py

clean: ## Remove what make has made
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build run.jsonl report.html
