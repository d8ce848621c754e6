# Every target works from a fresh clone with Python 3.12 or 3.13, git and make.
# The environment in .venv is made from constraints/dev.txt and renewed when that file changes.

.DEFAULT_GOAL := help
.PHONY: help demo dev test lint bench constraints clean

VENV := .venv
EMULATOR := .venv-emulator
BIN := $(VENV)/bin
WORKSPACE := examples/workspace
JOBS ?= 2
# Another interpreter for the environments, such as PYTHON=python3.13
PYTHON ?=

help:  ## List the targets
	@grep -E '^[a-z]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):.*## (.*)/  make \1\t\2/' | expand -t 22

demo: $(VENV)/ready  ## Load real data day by day into a DuckDB file and show a table
	@cd $(WORKSPACE) && DAGSTER_HOME=$(CURDIR)/$(WORKSPACE)/.dagster $(CURDIR)/$(BIN)/python demo.py

dev: $(VENV)/ready  ## Open the Dagster UI of the example workspace on http://localhost:3000
	@echo "Starting Dagster on the example workspace: http://localhost:3000 (Ctrl-C stops it)"
	@cd $(WORKSPACE) && mkdir -p .dagster && cp instance.yaml .dagster/dagster.yaml && \
		$(CURDIR)/$(BIN)/python seed.py --if-missing && \
		PATH=$(CURDIR)/$(BIN):$$PATH DAGSTER_HOME=$(CURDIR)/$(WORKSPACE)/.dagster dg dev

test: lint $(EMULATOR)/ready  ## Lint, types, import contracts and all tests
	@echo "Running all tests ($(JOBS) at a time)"
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

lint: $(VENV)/ready  ## Style, types and import contracts
	@echo "Checking style, types and import contracts"
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(VENV)/ready  ## Measure against plain DuckDB, Dagster and dagster-duckdb-pandas
	@$(BIN)/python benchmarks/run.py

constraints: $(VENV)/ready  ## Renew the pinned, hashed sets in constraints/
	@$(BIN)/python constraints/renew.py

clean:  ## Remove the environment and what the example and the benchmarks made
	rm -rf $(VENV) $(EMULATOR) .venv-peers benchmarks/.work $(WORKSPACE)/.dagster $(WORKSPACE)/*.duckdb*

$(VENV)/ready: constraints/dev.txt constraints/uv.txt pyproject.toml
	@$(call make-environment,$(VENV),constraints/dev.txt (about 130 packages, once))
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes constraints/dev.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

# The BigQuery API server of the tests; it needs nothing of $(VENV).
$(EMULATOR)/ready: constraints/emulator.txt constraints/uv.txt
	@$(call make-environment,$(EMULATOR),constraints/emulator.txt (about 80 packages, once))
	@$(EMULATOR)/bin/uv pip install --quiet --python $(EMULATOR)/bin/python --no-deps --require-hashes -r constraints/emulator.txt
	@touch $@

# An environment with nothing but uv: its directory, and what will be installed there
define make-environment
python=$$(for name in $(PYTHON) python3.12 python3.13 python3 python; do \
		$$name -c 'import sys; sys.exit(not (3, 12) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null \
			&& echo $$name && break; done); \
	if [ -z "$$python" ]; then echo "Python 3.12 or 3.13 is needed, and none was found on PATH."; exit 1; fi; \
	echo "Making $(1) with $$($$python --version) from $(2)"; \
	$$python -m venv $(1) && \
	$(1)/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r constraints/uv.txt
endef
