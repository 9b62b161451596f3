# `make help` lists the targets: each line that has a `##` behind its target.
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
SECONDS ?= 60
SEED ?= 1
SITE ?= site
PORT ?= 8000

# Tests of what loadsim uses of its dependencies: these also run with the oldest and the newest versions allowed.
VERSION_TESTS = $(addprefix tests/unit/test_, content.py live.py metrics.py open_telemetry.py profiles.py report.py scenarios.py smtp.py \
  smtp_pipelining.py timinglog.py) tests/cluster/test_certs.py tests/cluster/test_machine.py \
  $(addprefix tests/servers/test_, aioimaplib_module.py export.py servers.py)
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --custom-compile-command "make lock" pyproject.toml

.PHONY: help run test test-fast test-suite test-oldest test-newest check check-style check-types check-layers check-prose docs docs-serve schemas manual architecture format \
  hostile fuzz nightly nightly-servers nightly-tutorials nightly-package bench lock audit clean-venv

help: ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

run: $(VENV)/.installed ## simulate 20 users for one compressed day on a server started for it, and print the score
	@echo "Simulating a day of 20 users in a minute, on a mail server started for it."
	$(BIN)/loadsim run quickstart

# With two processes at least, 60 s of fuzzing take two minutes or more.
test: test-suite test-oldest test-newest fuzz ## run everything: the tests, also with the oldest and newest dependencies, and the fuzzer

test-fast: $(VENV)/.installed-dev ## run the unit and docs tests that are quick and need no Dovecot, Postfix, root or compiler
	$(BIN)/python -m pytest -q -n 2 --dist loadfile -m "not (slow or servers or compiler or hosts or ssh or tools)" tests/unit tests/docs

# The order is that of tests/support/suite.py: the files with long tests first.
test-suite: $(VENV)/.installed-dev ## run the tests; as root on Debian, install Dovecot and Postfix for them first
	sh tests/install-mail-servers.sh || [ $$? -eq 3 ]
	$(BIN)/python -m pytest -n 3 --dist loadfile --no-loadscope-reorder

test-oldest: $(VENV)-oldest/.installed ## run the tests of dependencies with the oldest versions allowed
	$(VENV)-oldest/bin/python -m pytest -q -n 3 --dist loadfile $(VERSION_TESTS)

# If the newest versions are the locked ones, the test suite has just run with them.
test-newest: $(VENV)/.installed-dev ## run the tests of dependencies with the newest versions allowed
	@$(COMPILE) --upgrade --extra dev --output-file $(VENV)/newest.txt
	@if cmp -s $(VENV)/newest.txt requirements/dev.txt; then echo "the lock has the newest version of every dependency"; else \
	  set -e; $(PYTHON) -m venv $(VENV)-newest; \
	  $(BIN)/uv pip sync --quiet --python $(VENV)-newest/bin/python --require-hashes $(VENV)/newest.txt; \
	  $(BIN)/uv pip install --quiet --python $(VENV)-newest/bin/python --no-deps --no-build-isolation -e .; \
	  $(VENV)-newest/bin/python -m pytest -q -n 3 --dist loadfile $(VERSION_TESTS); fi

check: check-style check-types check-layers check-prose docs ## check style, types, layers, prose and the pages' links

check-style: $(VENV)/.installed-dev ## ruff
	$(BIN)/ruff format --check
	$(BIN)/ruff check

check-types: $(VENV)/.installed-dev ## mypy --strict
	$(BIN)/mypy

check-layers: $(VENV)/.installed-dev ## import-linter
	$(BIN)/lint-imports

check-prose: $(VENV)/.installed-dev ## words and openings that CONTRIBUTING.md rules out
	$(BIN)/python tools/check_prose.py

# Not --quiet: it hides warnings from --strict, too.
docs: $(VENV)/.installed-dev ## build the documentation in SITE (site/); a broken link or a page without entry fails
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir $(SITE)
	@! grep -rnoE '<(script|link|img|iframe)[^>]*(src|href)="?(https?:)?//[^" >]*' --include='*.html' $(SITE) \
	  || { echo "the site loads something from elsewhere"; exit 1; }

docs-serve: docs ## show the built documentation at http://127.0.0.1:PORT (8000)
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory $(SITE) $(PORT)

schemas: $(VENV)/.installed-dev ## write schemas/ from the classes that read files, and from the reference
	PYTHONPATH=. $(BIN)/python tools/make_schemas.py

manual: $(VENV)/.installed-dev ## write man/loadsim.1 from the parsers of the commands
	PYTHONPATH=. $(BIN)/python tools/make_manual.py

architecture: $(VENV)/.installed-dev ## draw docs/explanation/architecture.svg from the imports
	$(BIN)/python tools/draw_architecture.py

format: $(VENV)/.installed-dev ## format the code, and correct what ruff can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

hostile: $(VENV)/.installed-dev ## run each fault of a mail server, and write the tables of docs/explanation/reliability.md
	PYTHONPATH=tests:tests/support $(BIN)/python -m hostile --write

fuzz: $(VENV)/.installed-dev ## give all readers random input for SECONDS (60) on all cores; SEED (1) repeats a run
	PYTHONPATH=tests:tests/support $(BIN)/python -m fuzz --seconds $(SECONDS) --seed $(SEED)

nightly: audit bench nightly-servers nightly-tutorials nightly-package ## all of these: audit, bench, other mail servers, tutorials, installations, an hour of fuzzing
	$(MAKE) fuzz SECONDS=3600 SEED=$$(date +%Y%m%d)

nightly-servers: $(VENV)/.installed-dev ## run one scenario, and more tests, on each mail server and Prometheus; fetch these first
	sh tests/install-other-servers.sh || [ $$? -eq 3 ]
	sh tests/install-java-servers.sh || [ $$? -eq 3 ]
	sh tests/install-prometheus.sh || [ $$? -eq 3 ]
	$(BIN)/python -m pytest -q -m nightly tests/servers

nightly-tutorials: $(VENV)/.installed-dev ## type the tutorials in a fresh Debian and on fourteen hosts; as root, on Debian
	sh tests/install-mail-servers.sh || [ $$? -eq 3 ]
	sh tests/install-mail-servers.sh podman uidmap crun catatonit slirp4netns fuse-overlayfs || [ $$? -eq 3 ]
	sh tests/install-fresh-debian.sh || [ $$? -eq 3 ]
	$(BIN)/python -m pytest -q -s -m nightly tests/docs tests/cluster --ignore tests/docs/test_package.py

nightly-package: $(VENV)/.installed-dev ## install wheel and source distribution from the index; run the quickstart
	$(BIN)/python -m pytest -q -m nightly tests/docs/test_package.py

bench: $(VENV)/.installed-dev ## measure loadsim's cost here; BENCH=--full for longer, with Dovecot, and imaptest if IMAPTEST is its path
	$(BIN)/python -m bench $(BENCH)

lock: $(VENV)/.installed-dev ## renew requirements/ from pyproject.toml
	$(COMPILE) --upgrade --extra dev --output-file requirements/dev.txt
	$(COMPILE) --upgrade --extra test --resolution lowest-direct --output-file requirements/oldest.txt

audit: $(VENV)/.installed-dev ## look up known weaknesses of the locked packages; needs pypi.org
	$(BIN)/uv tool run pip-audit --disable-pip --require-hashes --requirement requirements/dev.txt

clean-venv: ## remove the virtual environments
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-newest

# Debian packages venv separately: root gets it installed, others an error that names the package.
$(BIN)/python:
	@$(PYTHON) -c 'import sys; sys.exit("loadsim needs Python 3.11 or later" if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -y -qq python3-venv; } \
	  || { echo "Python's venv module is missing: apt-get install python3-venv"; exit 1; }
	@sh tools/progress.sh "Creating the virtual environment $(VENV)" $(PYTHON) -m venv $(VENV)

# Without --no-compile, a third of the time goes into bytecode of modules that no run imports.
$(VENV)/.installed: $(BIN)/python pyproject.toml
	@echo "Installing loadsim and its libraries in $(VENV), once:"
	@echo "about 25 MB to download, half a minute."
	@sh tools/progress.sh "Installing" $(BIN)/python -m pip install --disable-pip-version-check --no-compile -e .
	@touch $@

$(VENV)/.installed-dev: $(BIN)/python pyproject.toml requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --require-hashes -r requirements/dev.txt
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	@touch $@ $(VENV)/.installed

$(VENV)-oldest/.installed: $(VENV)/.installed-dev requirements/oldest.txt
	$(PYTHON) -m venv $(VENV)-oldest
	$(BIN)/uv pip sync --quiet --python $(VENV)-oldest/bin/python --require-hashes requirements/oldest.txt
	$(BIN)/uv pip install --quiet --python $(VENV)-oldest/bin/python --no-deps --no-build-isolation -e .
	@touch $@
