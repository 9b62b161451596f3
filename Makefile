# `make help` lists the targets: each line that has a `##` after its target.
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
SECONDS ?= 60
SEED ?= 1
SITE ?= site
PORT ?= 8000
OLDEST_PYTHON ?= python3.11
NEWER_PYTHONS ?= python3.12 python3.13 python3.14

COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --custom-compile-command "make lock" pyproject.toml

.PHONY: help run test test-fast check check-style check-types check-layers check-prose docs docs-serve reference architecture format \
  hostile fuzz nightly nightly-drivers nightly-runs nightly-tools nightly-hosts nightly-servers nightly-tutorials nightly-releases nightly-package nightly-mapi nightly-versions \
  bench lock audit clean-venv

help: ## list the targets
	@sed -n 's/^\([a-z][a-z-]*\):[^#]*## \(.*\)/  \1\t\2/p' $(MAKEFILE_LIST) | expand -t 16

run: $(VENV)/.installed ## simulate 20 users for one compressed day on a server started for it, and print the score
	@echo "Simulating a day of 20 users in a minute, on a mail server started for it."
	$(BIN)/loadsim run quickstart

# The order is that of tests/support/suite.py: the files with long tests first.
PYTEST = $(BIN)/python -m pytest -n 4 --dist loadfile --no-loadscope-reorder
INSTALL = sh tests/install-mail-servers.sh

test: $(VENV)/.installed-dev ## run the tests, as root; on Debian, install Dovecot and Postfix for them first
	$(INSTALL) || [ $$? -eq 3 ]
	$(PYTEST)

test-fast: $(VENV)/.installed-dev ## run the unit and docs tests that are quick and need neither root nor Dovecot
	$(PYTEST) -q -m "not (slow or system or nightly)" tests/unit tests/docs

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
docs: $(VENV)/.installed-dev ## build the documentation in SITE (site/); fails if a link is broken or a page not listed
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --site-dir $(SITE)
	@! grep -rnoE '<(script|link|img|iframe)[^>]*(src|href)="?(https?:)?//[^" >]*' --include='*.html' $(SITE) \
	  || { echo "the site loads something from elsewhere"; exit 1; }

docs-serve: docs ## show the built documentation at http://127.0.0.1:PORT (8000)
	$(BIN)/python -m http.server --bind 127.0.0.1 --directory $(SITE) $(PORT)

reference: $(VENV)/.installed-dev ## write man/loadsim.1, and the pages of commands and scenarios, from the code
	PYTHONPATH=. $(BIN)/python tools/make_manual.py
	PYTHONPATH=. $(BIN)/python tools/make_commands.py
	PYTHONPATH=. $(BIN)/python tools/make_keys.py
	PYTHONPATH=. $(BIN)/python tools/make_findings.py

architecture: $(VENV)/.installed-dev ## draw docs/explanation/architecture.svg from the imports
	$(BIN)/python tools/draw_architecture.py

format: $(VENV)/.installed-dev ## format the code, and correct what ruff can
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

hostile: $(VENV)/.installed-dev ## run each fault of a mail server, and write the tables in tests/hostile/recorded.md
	PYTHONPATH=tests:tests/support $(BIN)/python -m hostile --write

fuzz: $(VENV)/.installed-dev ## feed random input to all parsers for SECONDS (60) on all cores; SEED (1) repeats a run
	PYTHONPATH=tests:tests/support $(BIN)/python -m fuzz --seconds $(SECONDS) --seed $(SEED)

# Each part takes at most half an hour, and can be run alone.
nightly: nightly-drivers nightly-runs nightly-tools nightly-hosts nightly-servers nightly-tutorials nightly-releases nightly-package nightly-versions audit bench ## run what make test leaves out
	$(MAKE) fuzz SECONDS=1500 SEED=$$(date +%Y%m%d)

nightly-drivers: $(VENV)/.installed-dev ## run all drivers and mail programs against their ports and hostile servers
	$(INSTALL)
	$(PYTEST) -m "nightly(part='drivers')"

nightly-runs: $(VENV)/.installed-dev ## run real runs, searches and suites on Dovecot and Postfix
	$(INSTALL)
	$(INSTALL) e2fsprogs fio postmark
	$(PYTEST) -m "nightly(part='runs')"

nightly-tools: $(VENV)/.installed-dev ## open pages in a browser, and compare with tools such as iostat and slapadd
	$(INSTALL)
	$(INSTALL) chromium mandoc groff man-db sysstat procps strace e2fsprogs xfsprogs
	$(PYTEST) -m "nightly(part='tools')"

nightly-hosts: $(VENV)/.installed-dev ## run clusters on several hosts, which are network namespaces
	$(INSTALL)
	$(INSTALL) iproute2 openssh-server
	$(PYTEST) -m "nightly(part='hosts')"

nightly-servers: $(VENV)/.installed-dev ## run one scenario, and more tests, on each mail server and Prometheus; fetch these first
	sh tests/install-other-servers.sh
	sh tests/install-java-servers.sh
	sh tests/install-prometheus.sh
	$(PYTEST) -m "nightly(part='servers')"

nightly-tutorials: $(VENV)/.installed-dev ## type the tutorials in a fresh Debian and on fourteen hosts
	$(INSTALL)
	$(INSTALL) iproute2 openssh-server podman uidmap crun catatonit slirp4netns fuse-overlayfs
	sh tests/install-fresh-debian.sh trixie
	$(BIN)/python -m pytest -q -s -m "nightly(part='tutorials')"

nightly-releases: $(VENV)/.installed-dev ## type the README's commands, and run a day, on the stable Debian and on sid
	sh tests/install-fresh-debian.sh trixie sid
	$(BIN)/python -m pytest -q -s -m "nightly(part='releases')"

nightly-package: $(VENV)/.installed-dev ## install wheel and source distribution from the index; run the quickstart
	$(PYTEST) -m "nightly(part='package')"

nightly-mapi: $(VENV)/.installed-dev ## run the driver mapi on the endpoint that LOADSIM_MAPI_URL names (tests/servers/test_mapi_endpoint.py)
	$(PYTEST) -m "nightly(part='mapi')"

# Tests of what loadsim uses of its dependencies: the quick ones, and those of Dask, certificates, pymap and aiosmtpd.
# The README's first command follows, from a wheel.
VERSIONED = -m "not (slow or nightly)" tests/unit tests/docs tests/cluster/test_certs.py tests/cluster/test_machine.py \
  tests/servers/test_export.py tests/servers/test_servers.py

# Run them in an environment of its own: $(call with,NAME,PYTHON,REQUIREMENTS).
define with
	$(BIN)/uv venv --quiet --clear --no-python-downloads --python $(2) $(VENV)-$(1)
	$(BIN)/uv pip sync --quiet --python $(VENV)-$(1)/bin/python --require-hashes $(3)
	$(BIN)/uv pip install --quiet --python $(VENV)-$(1)/bin/python --no-deps --no-build-isolation -e .
	$(subst $(BIN),$(VENV)-$(1)/bin,$(PYTEST)) $(VERSIONED)
	$(BIN)/uv pip install --quiet --python $(VENV)-$(1)/bin/python --no-deps --no-build-isolation --reinstall .
	$(VENV)-$(1)/bin/loadsim run quickstart --no-report --out $$(mktemp -d)/run

endef

nightly-versions: $(VENV)/.installed-dev ## run tests with the oldest and newest dependencies, and newer Pythons
	@for python in $(OLDEST_PYTHON) $(NEWER_PYTHONS); do \
	  $(BIN)/uv python find --no-python-downloads $$python >/dev/null 2>&1 \
	  || { echo "$$python is missing: put it in PATH, or choose others by OLDEST_PYTHON and NEWER_PYTHONS"; exit 1; }; done
	$(INSTALL)
	$(call with,oldest,$(OLDEST_PYTHON),requirements/oldest.txt)
	$(COMPILE) --upgrade --extra dev --output-file $(VENV)/newest.txt
	$(call with,newest,$(BIN)/python,$(VENV)/newest.txt)
	$(foreach version,$(NEWER_PYTHONS),$(call with,$(version),$(version),requirements/dev.txt))

bench: $(VENV)/.installed-dev ## measure loadsim's cost here; BENCH=--full for longer, with Dovecot, and imaptest if IMAPTEST is its path
	$(BIN)/python -m bench $(BENCH)

lock: $(VENV)/.installed-dev ## renew requirements/ from pyproject.toml
	$(COMPILE) --upgrade --extra dev --output-file requirements/dev.txt
	$(COMPILE) --upgrade --extra test --resolution lowest-direct --output-file requirements/oldest.txt

audit: $(VENV)/.installed-dev ## look up known weaknesses of the locked packages; asks the package index
	$(BIN)/uv tool run pip-audit --disable-pip --require-hashes --requirement requirements/dev.txt

clean-venv: ## remove the virtual environments
	rm -rf $(VENV) $(VENV)-*

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
