# Everything a fresh machine needs: Python 3.11 or later, Java 17 or later for Spark, and the package index.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready

.PHONY: help setup java postgres browser promtool run ui cluster lint types layers test test-quick test-fast \
  test-search test-cassandra test-spark test-airflow test-long bench monitoring format clean

help:  ## What can be made here
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 16

setup: $(READY)  ## Create the virtual environment with the pinned packages

$(READY): pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or later is needed; name one with: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "Creating $(VENV) and installing the pinned packages (about 900 MB, a few minutes the first time)"
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt --editable '.[dev]'
	@touch $@

java:
	@$(PYTHON) -c 'import sys; from spark_jobs.environment import java_problem; problem = java_problem(); sys.exit(problem and str(problem))'

# As root, Debian's package is installed, but not the server that it would make and start.
POSTGRES_IS_HERE := { ls /usr/lib/postgresql/*/bin/postgres || command -v postgres; } > /dev/null 2>&1
APT_INSTALL := DEBIAN_FRONTEND=noninteractive apt-get install --quiet=2 --no-install-recommends
POSTGRES_INSTALL := $(APT_INSTALL) postgresql > /dev/null
NO_SERVER := /etc/postgresql-common/createcluster.d/sweepflow.conf
postgres:
	@$(POSTGRES_IS_HERE) || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; } \
	  || { echo "PostgreSQL is needed; install it first (Debian: apt-get install postgresql)"; exit 1; }
	@$(POSTGRES_IS_HERE) || { echo "Installing PostgreSQL with apt-get, for Airflow's metadata"; \
	  mkdir -p $(dir $(NO_SERVER)) && echo 'create_main_cluster = false' > $(NO_SERVER); \
	  $(POSTGRES_INSTALL) 2>&1 || { apt-get update --quiet=2 && $(POSTGRES_INSTALL); }; \
	  installed=$$?; rm -f $(NO_SERVER); exit $$installed; }

# As root, Debian's package is installed; the tests drive it, and bring no browser of their own.
BROWSER_INSTALL := $(APT_INSTALL) chromium fonts-dejavu-core > /dev/null
browser:
	@command -v chromium > /dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; } \
	  || { echo "Chromium is needed for the tests of the page; install it first (Debian: apt-get install chromium)"; exit 1; }
	@command -v chromium > /dev/null || { echo "Installing Chromium with apt-get, for the tests of the page"; \
	  $(BROWSER_INSTALL) 2>&1 || { apt-get update --quiet=2 && $(BROWSER_INSTALL); }; }

# Only this one program is taken out of Debian's package: the server that comes with it is not installed.
PROMTOOL_FETCH := apt-get download --quiet=2 prometheus > /dev/null
promtool: $(READY)
	@[ -x $(BIN)/promtool ] || command -v promtool > /dev/null || command -v apt-get > /dev/null \
	  || { echo "promtool is needed for the tests of the alert rules; install it first (it comes with Prometheus)"; exit 1; }
	@[ -x $(BIN)/promtool ] || command -v promtool > /dev/null || { echo "Fetching promtool with apt-get, for the alert rules"; \
	  folder=$$(mktemp -d) && place=$$(cd $(BIN) && pwd) && cd $$folder \
	  && { $(PROMTOOL_FETCH) 2>&1 || { apt-get update --quiet=2 && $(PROMTOOL_FETCH); }; } \
	  && dpkg-deb --fsys-tarfile prometheus_*.deb | tar --extract ./usr/bin/promtool && mv usr/bin/promtool $$place/; \
	  fetched=$$?; rm -rf $$folder; exit $$fetched; }

run: java $(READY)  ## Load a demo store, sweep it through Airflow and Spark, and report
	$(BIN)/sweepflow demo --airflow

ui: java $(READY)  ## Airflow with the DAGs, the pools and the demo store, until Ctrl-C
	$(BIN)/sweepflow demo --only-load --one-behind
	SWEEPFLOW_SHARDS=2 $(BIN)/sweepflow airflow up --paused --store sqlite:///.sweepflow/demo/demo.db

cluster: java postgres $(READY)  ## The parts of docker-compose.yaml without containers, and one hourly sweep across them
	$(BIN)/sweepflow dev cluster

lint: $(READY)  ## Style
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## Types
	$(BIN)/mypy

layers: $(READY)  ## The arrows between the rooms
	$(BIN)/lint-imports --no-cache > $(VENV)/layers.log || { cat $(VENV)/layers.log; exit 1; }

# A part of the tests: $(call part,SELECTION) runs it and keeps how long it took, also where it fails.
TIMES := build/times
part = @mkdir -p $(TIMES); begun=$$(date +%s); $(BIN)/pytest $(1); ended=$$?; \
  echo "$@ $$(( $$(date +%s) - begun ))" > $(TIMES)/$@; exit $$ended

test-quick: $(READY)  ## Rules, stores and scenarios, in two minutes
	$(call part,-m "not long" tests/scenarios tests/unit/sweep tests/unit/store tests/unit/queue tests/unit/timestamps \
	  tests/unit/transactions tests/unit/protection tests/unit/legacy)

test-fast: $(READY)  ## Tests that need no server: rules, stores, scenarios, the deployment's files
	@$(MAKE) --no-print-directory promtool
	$(call part,-m "not long" tests/unit tests/scenarios tests/deployment)

test-search: $(READY)  ## Searches for counter-examples
	$(call part,-m "not long" tests/properties)

test-cassandra: $(READY)  ## Tests on a real Cassandra and other servers of our own
	@$(MAKE) --no-print-directory postgres
	$(call part,-m "not long" tests/dev tests/cassandra)

test-spark: $(READY)  ## Tests on a real Spark
	$(call part,-m "not long" tests/spark tests/demo)

test-airflow: $(READY)  ## Tests on a real Airflow, with a browser
	@$(MAKE) --no-print-directory browser
	$(call part,-m "not long" tests/airflow)

# First what apt-get may have to bring, one after the other: two at once fail over its lock. Then two parts at a time:
# the longest, which starts Javas and waits for them, beside those that keep one core busy, then the other two.
PARTS := test-airflow test-fast test-search test-cassandra test-spark
test: lint layers  ## Everything that must pass before a change lands
	@$(MAKE) --no-print-directory postgres promtool browser
	@rm -rf $(TIMES); mkdir -p $(TIMES); begun=$$(date +%s); \
	  $(MAKE) --no-print-directory --jobs=2 --output-sync=target types $(PARTS); ended=$$?; \
	  echo "all $$(( $$(date +%s) - begun ))" > $(TIMES)/all; \
	  sort -k2 -n $(TIMES)/* | awk '{printf "%-14s %3d min %02d s\n", $$1, $$2 / 60, $$2 % 60}'; exit $$ended

test-long: postgres browser promtool $(READY)  ## What takes too long for every change: soaks, many rounds, wide searches
	SWEEPFLOW_TEST_EXAMPLES=2000 $(BIN)/pytest -m "long or properties"

bench: $(READY)  ## What is claimed about speed, as JSON
	$(BIN)/python -m benchmarks

monitoring: $(READY)  ## Write the dashboard and the alert rules anew, from the declared metrics
	$(BIN)/sweepflow metrics --dashboard > deploy/monitoring/dashboard.json
	$(BIN)/sweepflow metrics --rules > deploy/monitoring/rules.yaml

format: $(READY)  ## Rewrite the code in the house style
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove what was installed and made
	rm -rf $(VENV) .sweepflow build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
