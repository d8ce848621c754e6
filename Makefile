# Every target works from a fresh clone with Python 3.12 or 3.13, git and make.
# The environment in .venv is made from constraints/dev.txt and renewed when that file changes.

.DEFAULT_GOAL := help
.PHONY: help demo dev test lint bench smoke-bigquery oauth-server constraints clean

VENV := .venv
BIN := $(VENV)/bin
EMULATOR := .venv-emulator
ZETASQL := .venv-zetasql
OIDC := .node-oidc
WORKSPACE := examples/workspace
JOBS ?= 2
# Another interpreter for the environments, such as PYTHON=python3.13
PYTHON ?=

help:  ## List the targets
	@grep -E '^[a-z-]+:.*## ' $(MAKEFILE_LIST) | sed -E 's/^([a-z-]+):.*## (.*)/  make \1\t\2/' | expand -t 24

demo: $(VENV)/ready  ## Load real data day by day into a DuckDB file and show a table
	@cd $(WORKSPACE) && DAGSTER_HOME=$(CURDIR)/$(WORKSPACE)/.dagster $(CURDIR)/$(BIN)/python demo.py

dev: $(VENV)/ready  ## Open the Dagster UI of the example workspace on http://localhost:3000
	@echo "Starting Dagster on the example workspace: http://localhost:3000 (Ctrl-C stops it)"
	@cd $(WORKSPACE) && mkdir -p .dagster && cp instance.yaml .dagster/dagster.yaml && \
		$(CURDIR)/$(BIN)/python seed.py --if-missing && \
		PATH=$(CURDIR)/$(BIN):$$PATH DAGSTER_HOME=$(CURDIR)/$(WORKSPACE)/.dagster \
		$(CURDIR)/$(BIN)/python registry.py dg dev

test: lint $(EMULATOR)/ready $(ZETASQL)/ready $(OIDC)/ready  ## Lint, types, import contracts and all tests
	@echo "Running all tests ($(JOBS) at a time)"
	@$(BIN)/python -m pytest -n $(JOBS) --dist worksteal

lint: $(VENV)/ready  ## Style, types and import contracts
	@echo "Checking style, types and import contracts"
	@$(BIN)/ruff check
	@$(BIN)/ruff format --check
	@$(BIN)/mypy
	@$(BIN)/lint-imports

bench: $(VENV)/ready $(EMULATOR)/ready  ## Measure against plain DuckDB, Dagster and its IO managers for pandas
	@$(BIN)/python benchmarks/run.py

smoke-bigquery: $(VENV)/ready  ## Try BigQuery on a real project: PROJECT=... LOCATION=...
	@if [ -z "$(PROJECT)" ] || [ -z "$(LOCATION)" ]; then \
		echo "Name a project that may be written to, and a location: make smoke-bigquery PROJECT=my-project LOCATION=EU"; exit 2; fi
	@SMOKE_BIGQUERY_PROJECT=$(PROJECT) SMOKE_BIGQUERY_LOCATION=$(LOCATION) \
		$(BIN)/python -m pytest tests/bigquery/smoke.py -q -s

oauth-server: $(VENV)/ready $(OIDC)/ready  ## Start an OAuth server to try connections with
	@PYTHONPATH=tests $(BIN)/python tests/connections_runtime/serve_oidc.py

constraints: $(VENV)/ready  ## Renew the pinned, hashed sets in constraints/
	@$(BIN)/python constraints/renew.py

clean:  ## Remove the environment and what the example and the benchmarks made
	rm -rf $(VENV) $(EMULATOR) $(ZETASQL) $(OIDC) .venv-peers benchmarks/.work $(WORKSPACE)/.dagster $(WORKSPACE)/.segmentstream $(WORKSPACE)/*.duckdb*

$(VENV)/ready: constraints/dev.txt constraints/uv.txt pyproject.toml
	@python=$$(for name in $(PYTHON) python3.12 python3.13 python3 python; do \
		$$name -c 'import sys; sys.exit(not (3, 12) <= sys.version_info[:2] <= (3, 13))' 2>/dev/null \
			&& echo $$name && break; done); \
	if [ -z "$$python" ]; then echo "Python 3.12 or 3.13 is needed, and none was found on PATH."; exit 1; fi; \
	echo "Making $(VENV) with $$($$python --version) from constraints/dev.txt (about 130 packages, once)"; \
	$$python -m venv $(VENV)
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --require-hashes -r constraints/uv.txt
	@$(BIN)/uv pip sync --quiet --python $(BIN)/python --require-hashes constraints/dev.txt
	@$(BIN)/uv pip install --quiet --python $(BIN)/python --no-deps --no-build-isolation --editable .
	@touch $@

# The BigQuery API server of the tests.
$(EMULATOR)/ready: constraints/emulator.txt | $(VENV)/ready
	@echo "Making $(EMULATOR) from constraints/emulator.txt, the BigQuery server of the tests (about 80 packages, once)"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(EMULATOR)
	@$(BIN)/uv pip sync --quiet --python $(EMULATOR)/bin/python --require-hashes constraints/emulator.txt
	@touch $@

# The independent OAuth server of the tests, and the schema of Compose files; where Node.js is missing they skip and say so.
$(OIDC)/ready: constraints/oidc-provider/package-lock.json
	@if command -v npm >/dev/null; then \
		echo "Making $(OIDC) from constraints/oidc-provider, the OAuth server of the tests"; \
		rm -rf $(OIDC) && mkdir $(OIDC) && cp constraints/oidc-provider/*.json $(OIDC) && \
		cd $(OIDC) && npm ci --silent --no-audit --no-fund && touch ready; \
	else echo "Node.js is missing: the tests that need oidc-provider or the schema of Compose files will be skipped."; fi

# The first statement compiles ZetaSQL, into a file beside it.
$(ZETASQL)/ready: constraints/zetasql.txt | $(VENV)/ready
	@echo "Making $(ZETASQL) from constraints/zetasql.txt, which judges BigQuery's SQL (about 20 seconds, once)"
	@$(BIN)/uv venv --quiet --clear --python $(BIN)/python $(ZETASQL)
	@$(BIN)/uv pip sync --quiet --python $(ZETASQL)/bin/python --require-hashes constraints/zetasql.txt
	@echo '{"sql": "SELECT 1", "tables": {}}' | $(ZETASQL)/bin/python tests/bigquery/judge_host.py >$@.partial
	@mv $@.partial $@
