.DEFAULT_GOAL := help
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
USER_STAMP := $(VENV)/.installed-report
STAMP := $(VENV)/.installed
# The families of slow tests, which have a marker each (see pyproject.toml). `make test` leaves them out.
FAMILIES := attacks browser guides malformed notebooks optimizers postgres processes simulation site sizes statistics wire
EMPTY :=
SLOW = $(subst $(EMPTY) $(EMPTY), or ,$(strip $(FAMILIES)))
# One process more than there are cores: many tests wait for a server, a lease or another process.
PROCESSES := $(shell $(PYTHON) -c 'import os; print(min(9, (os.cpu_count() or 1) + 1))')
# The frameworks with many requirements, whose tests have environments of their own. Most are an extra of the project.
HOSTS := clients inspect mlflow openrlhf trl verifiers verl
# Without constraints.txt, because they need other versions of the same libraries. What verl and OpenRLHF need to compute
# rewards is less than what they require, which would need a GPU.
TRAINER_LIBRARIES := torch==2.13.0 tensordict==0.10.0 transformers==5.10.4 hydra-core==1.3.8 codetiming==1.4.0 \
  einops==0.8.2 pylatexenc==2.11 ray==2.60.0 sympy==1.14.0
LIBRARIES_clients := deepeval==4.3.1 langfuse==5.0.4 arize-phoenix-client==3.5.0 typesafe-sdk==0.7.5 \
  langchain-core==1.8.3 langchain-openai==1.7.4
LIBRARIES_openrlhf := $(TRAINER_LIBRARIES)
LIBRARIES_verl := $(TRAINER_LIBRARIES)
ALONE_openrlhf := openrlhf==0.11.2
ALONE_verl := verl==0.9.1
IMPORTS_clients := deepeval, langfuse, phoenix.client, typesafe_sdk, langchain_core.decisions, langchain_openai.decisions
# Tests that the environment of `make` skips, because its langchain-core is older.
TESTS_clients := tests/judges/test_decision_runnable.py
IMPORTS_inspect := inspect_ai
TEST_TOOLS := hypothesis pytest pytest-asyncio pytest-timeout pytest-xdist uv
PYTEST := -m pytest -q --ignore tests/ray $(HOSTS:%=--ignore tests/hosts/%) --numprocesses $(PROCESSES) --dist worksteal
# Without byte code, each worker and each process that a test starts would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
# The wheel, and the environments that it is checked in.
WHEEL := build/wheel
EXTRAS := [agreement,langchain,langchain-classic,metrics,otel,pandas,parquet,postgres,report,xlsx]
# The Python versions that pyproject.toml declares.
PYTHONS := $(shell sed -n 's/^  "Programming Language :: Python :: \(3\.[0-9]*\)",$$/\1/p' pyproject.toml)
# The libraries that `make bench` compares with need older releases than constraints.txt names.
BENCH_VENV := build/bench

.PHONY: help demo test test-slow test-all test-ray test-hosts test-training simulate coverage test-wheel test-newest test-pythons lint types docs docs-figures bench judges clean

help: ## Show this list
	@grep -E '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:.*## /\t/' | expand -t 14

# What users install is enough for the demo; the developers' tools are added to the same environment.
$(USER_STAMP): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "Python 3.11 or newer is needed: make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[report]'
	@touch $@

$(STAMP): $(USER_STAMP)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

demo: $(USER_STAMP) ## Grade six responses and make the report page: no key, no network service
	$(BIN)/rubric-integrations grade examples/quarterly_margin/rubric.yaml examples/quarterly_margin/responses.jsonl --out run.jsonl --overwrite
	$(BIN)/rubric-integrations report run.jsonl --output report.html

test: $(STAMP) ## Run all but the slow tests, with fewer examples of properties (two minutes on two cores)
	$(BIN)/python $(PYTEST) --hypothesis-profile quick -m "not ($(SLOW))"

test-slow: $(STAMP) ## Run the slow tests, or some families of them: make test-slow FAMILIES="browser site"
	$(BIN)/python $(PYTEST) -m "$(SLOW)"

test-all: test test-slow ## Run both: all tests but those of test-ray and test-hosts

# Ray takes half a minute to start its processes, and 300 MB: its tests are no part of `make test`.
test-ray: $(STAMP) ## Run the tests on a local Ray
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[ray]'
	$(BIN)/python -m pytest -q tests/ray

test-hosts: $(HOSTS:%=test-host-%) ## Run the tests with the real MLflow, TRL, ..., each in an environment of its own

test-training: test-host-trl ## Run the tests with the real trainers of TRL, on random weights

# The import fails if a framework is not there after all: its tests would be skipped.
test-host-%:
	$(PYTHON) -m venv build/hosts/$*
	build/hosts/$*/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[$*]' $(TEST_TOOLS)
	build/hosts/$*/bin/python -c 'import $(or $(IMPORTS_$*),$*)'
	build/hosts/$*/bin/python -m pytest -q tests/hosts/$*

test-host-clients test-host-openrlhf test-host-verl: test-host-%:
	$(PYTHON) -m venv build/hosts/$*
	build/hosts/$*/bin/python -m pip install --quiet --disable-pip-version-check --editable . $(LIBRARIES_$*) $(TEST_TOOLS)
	$(ALONE_$*:%=build/hosts/$*/bin/python -m pip install --quiet --disable-pip-version-check --no-deps %)
	build/hosts/$*/bin/python -c 'import $(or $(IMPORTS_$*),$*)'
	build/hosts/$*/bin/python -m pytest -q tests/hosts/$* $(TESTS_$*)

simulate: $(STAMP) ## Play 20,000 simulated runs with faults, crashes and pauses (about ten minutes)
	$(BIN)/python -m tests.simulation 0 19999

# The second part adds its coverage to that of the first, and is compared with the least that is required. All examples
# of properties are tried.
coverage: $(STAMP) ## Run the tests of test-all, and print the branch coverage of the package
	$(BIN)/python $(PYTEST) -m "not ($(SLOW))" -p pytest_cov --cov --cov-report= --cov-fail-under=0
	$(BIN)/python $(PYTEST) -m "$(SLOW)" -p pytest_cov --cov --cov-append

test-wheel: $(STAMP) ## Check the wheel in new environments, with the newest and with the lowest libraries
	rm -rf $(WHEEL)
	$(BIN)/python -m pip wheel --quiet --disable-pip-version-check --no-deps --wheel-dir $(WHEEL) .
	$(PYTHON) -m venv $(WHEEL)/newest
	$(WHEEL)/newest/bin/python -m pip install --quiet --disable-pip-version-check $(WHEEL)/*.whl
	$(WHEEL)/newest/bin/python tests/wheel/check.py names
	$(WHEEL)/newest/bin/python -m pip install --quiet --disable-pip-version-check "$$(echo $(WHEEL)/*.whl)$(EXTRAS)" langchain-openai
	$(WHEEL)/newest/bin/python tests/wheel/check.py readme
	$(BIN)/python tests/wheel/lowest.py > $(WHEEL)/lowest.txt
	$(BIN)/uv venv --quiet --python $(BIN)/python $(WHEEL)/lowest
	$(BIN)/uv pip install --quiet --python $(WHEEL)/lowest --constraint $(WHEEL)/lowest.txt "$$(echo $(WHEEL)/*.whl)$(EXTRAS)" langchain-openai
	$(WHEEL)/lowest/bin/python tests/wheel/check.py readme

# Without constraints.txt, and without the ceilings in pyproject.toml.
test-newest: $(STAMP) ## Run the tests with the newest libraries of the package index, also above our ceilings
	rm -rf build/newest
	$(BIN)/uv venv --quiet --python $(BIN)/python build/newest
	$(BIN)/python tests/wheel/newest.py names > build/newest/overrides.txt
	$(BIN)/uv pip install --quiet --python build/newest --override build/newest/overrides.txt --editable '.[dev]'
	build/newest/bin/python tests/wheel/newest.py versions
	build/newest/bin/python $(PYTEST) --hypothesis-profile quick -m "not ($(SLOW))"

test-pythons: $(PYTHONS:%=test-python%) ## Run the tests with each supported Python that is installed

# pyenv's commands exist for versions that are not selected, and then fail: the version is selected, and the command run.
test-python%:
	@if ! PYENV_VERSION=$* python$* -c '' 2>/dev/null; then echo "Python $* is skipped: there is no command python$*"; else \
	  set -ex; PYENV_VERSION=$* python$* -m venv build/python$*; \
	  build/python$*/bin/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[test]'; \
	  build/python$*/bin/python $(PYTEST) --ignore tests/test_notebooks.py; fi

lint: $(STAMP) ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(STAMP) ## Check types, strictly, in the package and the tests
	$(BIN)/basedpyright

docs: $(STAMP) ## Build the documentation into build/site
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict

docs-figures: $(STAMP) ## Compare the figures of the documentation with what their commands print today
	$(BIN)/python -m docs.figures

# The calls are counted with the library versions of constraints.txt, on which their number depends.
bench: $(USER_STAMP) $(BENCH_VENV)/.installed ## Measure what the library adds around a model
	$(BIN)/python benchmarks/calls.py
	$(BENCH_VENV)/bin/python benchmarks/speed.py
	$(BENCH_VENV)/bin/python benchmarks/prefix.py

$(BENCH_VENV)/.installed: pyproject.toml
	$(PYTHON) -m venv $(BENCH_VENV)
	$(BENCH_VENV)/bin/python -m pip install --quiet --disable-pip-version-check --editable '.[bench]'
	@touch $@

judges: $(USER_STAMP) ## Measure recorded judges on ../shared/data, and write docs/judges.md
	$(BIN)/python benchmarks/judges.py

clean: ## Remove what make has made
	rm -rf $(VENV) .pytest_cache .ruff_cache .hypothesis build run.jsonl report.html
