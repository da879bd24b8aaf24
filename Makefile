# `make demo` and `make test` set up everything they need in .venv; nothing global but Mosquitto, and that only
# for the tests, by apt, when root and missing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# Packages are pinned by version and hash, with all that they need, so pip resolves nothing; the project itself is
# installed without asking an index again.
INSTALLED := $(VENV)/.installed

.PHONY: help demo test test-quick research-test test-all slow-tests drills browser-test chromium promtool fuzz honest-proofs lint format docs site bench bench-peers growth soak load pictures screenshots servers pins pin-images clean containers-test

# What stands behind ## is what `make help` says of a target; those without it are parts of others.
help:
	@sed -n 's/^\([a-z-]*\):[^#]*## /\1\t/p' $(MAKEFILE_LIST) | while IFS="$$(printf '\t')" read -r target words; do \
		printf 'make %-12s %s\n' "$$target" "$$words"; \
	done

$(INSTALLED): constraints.txt pyproject.toml research/pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || \
		{ echo "foltr needs Python 3.11 or newer; name one with: make PYTHON=/path/to/python3.11"; exit 1; }
	@test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	@echo "Installing the pinned packages into $(VENV) (about a minute)"
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes -r constraints.txt
	@$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e . -e ./research
	@touch $@

demo: $(INSTALLED) ## a federation on this machine: broker, federator, 20 devices, real data
	@$(BIN)/foltr demo

# Tests start hundreds of Pythons, none of which need compile the project again; an empty value does not count.
export PYTHONDONTWRITEBYTECODE :=

# Most tests wait for servers, processes and deadlines: four at a time kept 1.4 of two processors busy. So three for each
# processor run at a time, at most six, each on its servers. `make test WORKERS=0` runs them one after the other.
WORKERS ?= $(shell n=$$((3 * $$(getconf _NPROCESSORS_ONLN))); echo $$((n < 6 ? n : 6)))
# What these tests write need not outlive the machine, and a commit to memory waits for no disk: their folders are there
# if it has four gigabytes free and programs may be run from it.
FOLDERS ?= $(shell df -Pk /dev/shm 2>/dev/null | awk 'NR == 2 && $$4 > 4194304 && $$6 == "/dev/shm" {print $$6}' \
	| while read -r memory; do mount | grep " $$memory " | grep -q noexec || echo $$memory; done)
PARALLEL = --numprocesses $(WORKERS) --dist worksteal
# In a fresh checkout one process writes the byte code of all tests, before each of several would: 10 s of a processor.
BYTECODE = test -d tests/support/__pycache__ || $(BIN)/python -m pytest --collect-only --quiet >/dev/null || true
# Each worker collects all tests, so those that wait for nothing go through one for each processor.
BRIEFLY = --numprocesses $(if $(filter 0,$(WORKERS)),0,logical) --dist worksteal
PYTEST = $(if $(FOLDERS),TMPDIR=$(FOLDERS) )$(BIN)/python -m pytest
test: $(INSTALLED) servers ## the tests that a change must pass, with real Mosquitto and PostgreSQL: ten minutes
	@$(BYTECODE)
	@FOLTR_TEST_SIMULATION_FIXED_SEEDS=$${FOLTR_TEST_SIMULATION_FIXED_SEEDS:-200} \
		FOLTR_TEST_SIMULATION_SEEDS=$${FOLTR_TEST_SIMULATION_SEEDS:-100} $(PYTEST) $(PARALLEL) -m "not nightly" tests

test-quick: $(INSTALLED) ## the fast tests, without servers: a minute and a half
	@$(BYTECODE)
	@FOLTR_TEST_SERVERS=none $(PYTEST) $(BRIEFLY) -m "not slow and not nightly" -q -r fE tests

slow-tests: $(INSTALLED) ## measure which tests test-quick leaves out, on an idle machine: ten minutes
	@FOLTR_TEST_SERVERS=none $(PYTEST) $(BRIEFLY) -m "not nightly" -q --durations=0 tests | tee /dev/stderr | $(BIN)/python tests/support/slow_tests.py

research-test: $(INSTALLED) ## what a change must pass of research: notebooks, code from outside, reports by age: two minutes
	@$(PYTEST) $(BRIEFLY) -q -r fE research/tests/test_notebooks.py research/tests/plugins \
		research/tests/reproductions/test_records.py research/tests/reproductions/test_stored_results.py

# 20,000 seeds of simulated federations are drawn for this run, beside the 1,800 that never change.
test-all: $(INSTALLED) servers ## all tests, also research and containers: for the night
	@failed=0; \
	export FOLTR_TEST_NIGHTLY=1 FOLTR_TEST_SIMULATION_SEEDS=$${FOLTR_TEST_SIMULATION_SEEDS:-20000}; \
	$(PYTEST) $(PARALLEL) || failed=1; \
	$(MAKE) --no-print-directory browser-test || failed=1; \
	$(MAKE) --no-print-directory containers-test || failed=1; \
	exit $$failed

# One after the other: it measures. The bar is ten seconds; an alert comes later by what stands behind it.
drills: $(INSTALLED) servers ## break a federation of real processes, and print who knew after how many seconds: four minutes
	@table=$$(mktemp); FOLTR_TEST_DRILLS=$$table $(PYTEST) -q tests/integration/test_drills.py; failed=$$?; \
	printf '| drill | verdict | reason | culprit | status s | API s | page s | metrics s | alert |\n|---|---|---|---|---|---|---|---|---|\n'; \
	cat $$table; rm $$table; exit $$failed

# What npm installs is pinned by version and hash, like the rest (`npm run pins` after a change of package.json).
BROWSER := clients/browser
DOCS_SEARCH := examples/docs_search
browser-test: ## the client for browsers and its example: types, tests, size; skipped without Node.js 20 or packages
	@if ! node -e 'process.exit(process.versions.node.split(".")[0] < 20 ? 1 : 0)' 2>/dev/null || ! command -v npm >/dev/null; then \
		echo "SKIPPED: no Node.js 20 with npm here: the client for browsers was not tested"; \
	elif ! (for folder in $(BROWSER) $(DOCS_SEARCH); do \
			test $$folder/node_modules/.package-lock.json -nt $$folder/package-lock.json || \
				(cd $$folder && npm ci --silent --prefer-offline --ignore-scripts) || exit 1; \
		done); then \
		echo "SKIPPED: npm could not install the pinned packages: the client for browsers was not tested"; \
	else \
		(cd $(BROWSER) && npm test --silent) && cd $(DOCS_SEARCH) && npm test --silent; \
	fi

chromium: ## install Chromium for browser-test, if it is missing and you may
	@if ! command -v chromium >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing Chromium with apt"; \
			{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq chromium; } >/dev/null 2>&1 || \
				echo "Chromium could not be installed: its test will be skipped"; \
		else \
			echo "No Chromium, and not root to install it: its test will be skipped"; \
		fi; \
	fi

# Needs root, apt and a Debian mirror, or podman and a registry. Where containers cannot be had it says SKIPPED and why, and ends well.
containers-test: $(INSTALLED) ## run the images and both Compose files with podman: some minutes, 2 GB of disk
	@PYTHONPATH=.:docker $(BIN)/python docker/testing/run.py

promtool: ## install Prometheus and Alertmanager, for tests of alerts and of the board, if they are missing and you may
	@if ! command -v promtool >/dev/null || ! command -v amtool >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing Prometheus and Alertmanager with apt"; \
			{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends prometheus \
				prometheus-alertmanager; } >/dev/null 2>&1 || \
				echo "Prometheus and Alertmanager could not be installed: tests of alerts and of the board will be skipped"; \
		else \
			echo "No promtool or amtool, and not root to install them: tests of alerts and of the board will be skipped"; \
		fi; \
	fi

# 15,000 of each of seven sizes, a hundred of which are in every test run.
honest-proofs: $(INSTALLED) ## check that no norm proof of 105,000 honest devices is rejected: some minutes
	@FOLTR_TEST_HONEST_PROOFS=15000 $(BIN)/python -m pytest --numprocesses 2 -k honest_devices_at_the_bound tests/core/secure

# A million wrong messages, or FOLTR_TEST_FUZZ_INPUTS; coverage-guided ones too where that fuzzer is installed
# (pip install atheris). What breaks a promise is kept in tests/fuzz/found and tried first by every test run.
fuzz: $(INSTALLED) ## a million wrong messages, or FOLTR_TEST_FUZZ_INPUTS
	@$(BIN)/python tests/fuzz/run.py
	@if $(BIN)/python -c 'import atheris' 2>/dev/null; then $(BIN)/python tests/fuzz/guided.py; \
		else echo "Not installed: the coverage-guided fuzzer"; fi

# Mosquitto is no Python package. PostgreSQL comes from the machine or from a wheel (see tests/support/servers.py).
servers: ## install Mosquitto, if it is missing and you may
	@if ! PATH="$$PATH:/usr/sbin:/usr/local/sbin" command -v mosquitto >/dev/null; then \
		if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
			echo "Installing Mosquitto with apt"; \
			{ apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq mosquitto; } >/dev/null 2>&1 || \
				echo "Mosquitto could not be installed: its tests will be skipped"; \
		else \
			echo "No Mosquitto, and not root to install it: its tests will be skipped"; \
		fi; \
	fi

lint: $(INSTALLED) ## formatting, lint, types, import direction, no clocks in tests, short pages in plain words
	@$(BIN)/ruff format --check --quiet . || { echo "run: make format"; exit 1; }
	@$(BIN)/ruff check --quiet .
	@$(BIN)/mypy
	@$(BIN)/mypy examples/desktop_search examples/docs_search
	@$(BIN)/lint-imports --no-logo
	@$(BIN)/python tests/support/clock_lint.py
	@$(BIN)/python docs/plain_words.py

format: $(INSTALLED) ## fix the formatting
	@$(BIN)/ruff check --quiet --fix . || true
	@$(BIN)/ruff format --quiet .

docs: $(INSTALLED) ## fill the generated parts of the documents
	@$(BIN)/python docs/generate.py

site: $(INSTALLED) ## build the documentation site in build/site; broken links are errors
	@$(BIN)/python docs/build_site.py

# One after the other, for a quarter of an hour on two idle processors. An interrupted run continues;
# `make bench RUNS="rounds start-up"` repeats these, and `research/benchmarks/bench.py --help` names them all.
RUNS ?=
bench: $(INSTALLED) servers ## run every benchmark beside its peer and write docs/benchmarks.md; peers: make bench-peers
	@PYTHONPATH=. $(BIN)/python research/benchmarks/bench.py --peers $(PEERS)/bin/python $(RUNS)

# byzfl and Flower, which `make bench` measures beside ours, in a separate environment: torch alone is several
# gigabytes, and Flower wants older packages than ours. Without them rules are measured against bare NumPy alone.
PEERS ?= .venv-peers
bench-peers: constraints-bench.txt ## install byzfl and Flower for `make bench`, in a separate environment: gigabytes
	@test -x $(PEERS)/bin/python || $(PYTHON) -m venv $(PEERS)
	@$(PEERS)/bin/python -m pip install --quiet --disable-pip-version-check --require-hashes -r constraints-bench.txt

# A quarter of an hour on two idle processors, in pieces if you like: MINUTES=4 begins nothing that would end later, and
# the next `make growth` goes on.
MINUTES ?= 60
growth: $(INSTALLED) servers ## measure how costs grow with devices and weights; writes docs/sizing.md
	@PYTHONPATH=. $(BIN)/python research/benchmarks/growth.py --minutes $(MINUTES)

load: $(INSTALLED) servers ## measure how many updates a second the federator takes, and how fast it answers
	@$(BIN)/python research/benchmarks/load.py

pictures: $(INSTALLED) ## the pictures of docs/pictures from stored results; nothing is measured or simulated
	@$(BIN)/python research/benchmarks/pictures.py

# The two pictures of the README come from the same run.
screenshots: $(INSTALLED) ## pictures of the pages in their states, from their tests in Chromium, in build/screenshots
	@mkdir -p build/screenshots
	@FOLTR_TEST_SCREENSHOTS=build/screenshots $(BIN)/python -m pytest -q tests/api/test_page.py tests/api/test_page_lists.py
	@cp build/screenshots/page_light.png build/screenshots/page_dark.png docs/pictures/

soak: $(INSTALLED) servers ## run hundreds of devices that come and go for 20 minutes: does anything get lost or grow
	@$(BIN)/python research/benchmarks/soak.py

# Run this after changing the dependencies in pyproject.toml: names, versions and hashes, no addresses. The images
# get the same versions as everything else.
UV_COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes --no-header --no-annotate
pins: ## pin packages again after a change of the dependencies
	@test -x $(BIN)/uv || $(BIN)/python -m pip install --quiet uv
	@$(UV_COMPILE) pyproject.toml research/pyproject.toml --all-extras --no-emit-package foltr --group dev --group docs --output-file constraints.txt
	@$(UV_COMPILE) pyproject.toml -c constraints.txt --extra federator --extra postgres --extra metrics -o docker/federator.txt
	@$(UV_COMPILE) pyproject.toml -c constraints.txt --extra federator --extra postgres --extra dashboard -o docker/dashboard.txt
	@$(UV_COMPILE) pyproject.toml -c constraints.txt --extra cli --extra metrics -o docker/helper.txt
	@$(UV_COMPILE) pyproject.toml -c constraints.txt --extra cli -o docker/edge-client.txt
	@$(UV_COMPILE) pyproject.toml -c constraints.txt --extra simulation -o docker/edge-client-simulation.txt
	@$(UV_COMPILE) --group peers -o constraints-bench.txt
	@echo hatchling | $(UV_COMPILE) - -c constraints.txt -o docker/build.txt

pin-images: ## ask your registry for the digests of the images in docker/: needs Docker with buildx, or podman
	@$(PYTHON) docker/pin_images.py

clean: ## remove the environments and caches
	@rm -rf $(VENV) $(PEERS) build .mypy_cache .pytest_cache .ruff_cache .hypothesis dist
