# A new machine needs Python 3.11 or later, Java 17 or later for Spark, and access to the package index.
.DEFAULT_GOAL := help
.DELETE_ON_ERROR:

PYTHON ?= $(shell command -v python3.11 || command -v python3)
VENV ?= .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
ARCHIVE := $(VENV)/share/sweepflow/spark.jsa
TOOLS := $(VENV)/tools
PIP_INSTALL := -m pip install --quiet --disable-pip-version-check

.PHONY: help setup java postgres browser promtool run ui cluster lint types layers test test-quick test-fast \
  test-search test-cassandra test-spark test-airflow test-long bench monitoring screenshot lock audit hooks digests format clean

help:  ## List the targets
	@grep -hE '^[a-z-]+:.*##' $(MAKEFILE_LIST) | sed -E 's/:[^#]*## */\t/' | expand -t 16

setup: $(READY)  ## Create the virtual environment with the pinned packages

# Only files whose hash is in the lock are installed. Packages that are only available as source are built with the
# setuptools of the lock, which is therefore installed first: otherwise pip would fetch one without checking its hash. The
# lock is complete, so pip resolves nothing; `pip check` reports whether a package is missing on this Python.
$(READY): pyproject.toml requirements.txt requirements/build.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
	  || { echo "Python 3.11 or later is needed; name one with: make PYTHON=/path/to/python3.11 $(MAKECMDGOALS)"; exit 1; }
	@echo "Creating $(VENV) and installing the pinned packages (about 900 MB, a few minutes the first time)"
	$(PYTHON) -m venv --clear $(VENV)
	$(BIN)/python $(PIP_INSTALL) --require-hashes --only-binary :all: --requirement requirements/build.txt
	$(BIN)/python $(PIP_INSTALL) --require-hashes --no-deps --no-build-isolation --use-pep517 --requirement requirements.txt
	$(BIN)/python $(PIP_INSTALL) --no-deps --no-build-isolation --editable .
	@$(BIN)/python -m pip check > $(VENV)/check.log || { cat $(VENV)/check.log; exit 1; }
	@touch $@

$(ARCHIVE): $(READY)
	@echo "Archiving the Java classes of Spark, so that each Spark of the tests starts faster"
	@$(BIN)/python -m spark_jobs.archive

java:
	@$(PYTHON) -c 'import sys; from spark_jobs.environment import java_problem; problem = java_problem(); sys.exit(problem and str(problem))'

# As root, Debian's package is installed, without the server that it would create and start.
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

# As root, Debian's package is installed. The tests use it and bring no browser of their own.
BROWSER_INSTALL := $(APT_INSTALL) chromium fonts-dejavu-core > /dev/null
browser:
	@command -v chromium > /dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get > /dev/null; } \
	  || { echo "Chromium is needed for the tests of the page; install it first (Debian: apt-get install chromium)"; exit 1; }
	@command -v chromium > /dev/null || { echo "Installing Chromium with apt-get, for the tests of the page"; \
	  $(BROWSER_INSTALL) 2>&1 || { apt-get update --quiet=2 && $(BROWSER_INSTALL); }; }

# Only this program is extracted from Debian's package; the Prometheus server is not installed.
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

ui: java $(READY)  ## Run Airflow with the DAGs, the pools and the demo store, until Ctrl-C
	$(BIN)/sweepflow demo --only-load --one-behind
	SWEEPFLOW_SHARDS=2 $(BIN)/sweepflow airflow up --paused --store sqlite:///.sweepflow/demo/demo.db

cluster: java postgres $(READY)  ## Run the services of docker-compose.yaml without containers, and one hourly sweep
	$(BIN)/sweepflow dev cluster

lint: $(READY)  ## Check style and formatting
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)  ## Check types
	$(BIN)/mypy

layers: $(READY)  ## Check the direction of imports between packages
	$(BIN)/lint-imports --no-cache > $(VENV)/layers.log || { cat $(VENV)/layers.log; exit 1; }

# $(call part,SELECTION) runs one part of the tests and records its duration, also if it fails. Parts that start no server
# run at a lower priority.
TIMES := build/times
SERVERLESS := test-fast test-search
part = @mkdir -p $(TIMES); begun=$$(date +%s); $(if $(filter $@,$(SERVERLESS)),nice -n 5) $(BIN)/pytest $(1); ended=$$?; \
  echo "$@ $$(( $$(date +%s) - begun ))" > $(TIMES)/$@; exit $$ended

test-quick: $(READY)  ## Test rules, stores and scenarios, in two minutes
	$(call part,-m "not long" tests/scenarios tests/unit/sweep tests/unit/store tests/unit/queue tests/unit/coordination \
	  tests/unit/transactions tests/unit/protection tests/unit/tables tests/unit/legacy)

test-fast: $(READY)  ## Run tests without servers: rules, stores, scenarios, deployment files
	@$(MAKE) --no-print-directory promtool
	$(call part,-m "not long" tests/unit tests/scenarios tests/deployment)

test-search: $(READY)  ## Search for counter-examples
	$(call part,-m "not long" tests/properties)

test-cassandra: $(READY)  ## Run tests on a real Cassandra and other local servers
	@$(MAKE) --no-print-directory postgres
	$(call part,-m "not long" tests/local tests/cassandra)

test-spark: $(READY)  ## Run tests on a real Spark
	$(call part,-m "not long" tests/spark tests/demo)

test-airflow: $(READY)  ## Run tests on a real Airflow, with a browser
	@$(MAKE) --no-print-directory browser
	$(call part,-m "not long" tests/airflow)

# apt-get packages are installed first, one after the other, because concurrent runs fail on its lock. Then three parts run
# at a time, longest first. Parts with servers wait for them at times; parts that only compute use that time at a lower
# priority. They also come last, because they can use the cores that become free at the end.
PARTS := test-cassandra test-airflow test-fast test-spark test-search
test: lint layers $(ARCHIVE)  ## Run everything that must pass before a change lands
	@$(MAKE) --no-print-directory postgres promtool browser
	@rm -rf $(TIMES); mkdir -p $(TIMES); begun=$$(date +%s); \
	  $(MAKE) --no-print-directory --jobs=3 --output-sync=target types $(PARTS); ended=$$?; \
	  echo "all $$(( $$(date +%s) - begun ))" > $(TIMES)/all; \
	  sort -k2 -n $(TIMES)/* | awk '{printf "%-14s %3d min %02d s\n", $$1, $$2 / 60, $$2 % 60}'; exit $$ended

test-long: postgres browser promtool $(READY)  ## Run long tests: soaks, many rounds, wide searches
	SWEEPFLOW_TEST_EXAMPLES=2000 $(BIN)/pytest -m "long or properties"

bench: $(READY)  ## Measure the performance, record it, and write docs/benchmarks.md
	$(BIN)/python -m benchmarks --record benchmarks/results
	$(BIN)/python -m benchmarks page

monitoring: $(READY)  ## Generate the dashboard and the alert rules from the declared metrics
	$(BIN)/sweepflow metrics --dashboard > deploy/monitoring/dashboard.json
	$(BIN)/sweepflow metrics --rules > deploy/monitoring/rules.yaml

# The browser tests keep pictures of what they see.
screenshot: browser $(READY)  ## Take the picture of the page in the README
	$(BIN)/pytest tests/airflow/test_page.py -k "operator_sees"
	cp "build/screenshots/a shard is late.png" docs/images/page.png

# uv, pip-audit and pre-commit, with their dependencies, in a separate environment, so that nothing else depends on them.
# The main environment may be outdated: an up-to-date one can't be installed before the lock exists.
$(TOOLS)/.ready: requirements/tools.txt $(if $(wildcard $(BIN)/python),,$(READY))
	$(PYTHON) -m venv --clear $(TOOLS)
	$(TOOLS)/bin/python $(PIP_INSTALL) --require-hashes --only-binary :all: --requirement requirements/tools.txt
	@touch $@

# Locks: all of constraints.txt, the build packages, the packages of the image, and the tools.
LOCK := $(TOOLS)/bin/uv pip compile --quiet --no-header --no-annotate --generate-hashes --python $(BIN)/python \
  --no-build-isolation --upgrade
lock: $(TOOLS)/.ready  ## Write the locks with hashes from constraints.txt and requirements/tools.in
	$(LOCK) --no-deps --output-file requirements.txt constraints.txt
	echo setuptools | $(LOCK) --constraint constraints.txt --output-file requirements/build.txt -
	$(LOCK) --constraint constraints.txt --extra deploy --output-file requirements/deploy.txt pyproject.toml
	$(LOCK) --output-file requirements/tools.txt requirements/tools.in

audit: $(TOOLS)/.ready  ## Query known vulnerabilities of everything in the lock (needs the network)
	$(TOOLS)/bin/pip-audit --strict --require-hashes --disable-pip --progress-spinner off --requirement requirements.txt $(AUDIT)

hooks: $(READY) $(TOOLS)/.ready  ## Check style, types and layers before each commit
	$(TOOLS)/bin/pre-commit install

digests:  ## Print lines for .env that name each image by its digest (needs Docker and the registry)
	@grep -ohE '[A-Z]+_IMAGE:-[^}]+' docker-compose.yaml | sort -u | while IFS= read -r each; do \
	  image=$${each#*:-}; digest=$$(docker buildx imagetools inspect --format '{{.Manifest.Digest}}' "$$image") || exit 1; \
	  echo "$${each%%:-*}=$$image@$$digest"; done

format: $(READY)  ## Format the code
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

clean:  ## Remove everything that was installed or generated
	rm -rf $(VENV) .sweepflow build .mypy_cache .pytest_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
