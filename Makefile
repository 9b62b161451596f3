# run: see loadsim work, on a mail server that is started for it.  test: everything that proves it.  check: style, types, layers.
# lock: renew requirements/ from pyproject.toml.  audit: look up known weaknesses of the locked packages (needs pypi.org).
# hostile: run each fault of a mail server by itself, and write the tables of docs/explanation/reliability.md.
# fuzz: random input to all readers, for SECONDS on all cores (SEED says which).  nightly: an hour of it, audit, benches.
# bench: what loadsim costs on this machine; BENCH=--full for longer, with Dovecot, and imaptest if IMAPTEST is its path.
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin
SECONDS ?= 60
SEED ?= 1

# Tests of what loadsim uses of its dependencies: these also run with the oldest and the newest versions allowed.
VERSION_TESTS = $(addprefix tests/test_, aioimaplib_module.py certs.py content.py export.py live.py machine.py metrics.py \
  profiles.py report.py scenarios.py servers.py smtp.py smtp_pipelining.py timinglog.py)
COMPILE = $(BIN)/uv pip compile --quiet --universal --python-version 3.11 --generate-hashes \
  --custom-compile-command "make lock" pyproject.toml

.PHONY: run test test-suite test-oldest test-newest check format hostile fuzz nightly bench lock audit clean-venv

run: $(VENV)/.installed
	$(BIN)/loadsim run quickstart

# With two processes at least, 60 s of fuzzing are two minutes or more.
test: test-suite test-oldest test-newest fuzz

test-suite: $(VENV)/.installed-dev
	sh tests/install-mail-servers.sh || [ $$? -eq 3 ]
	$(BIN)/python -m pytest -n 3 --dist loadfile

test-oldest: $(VENV)-oldest/.installed
	$(VENV)-oldest/bin/python -m pytest -q -n 3 --dist loadfile $(VERSION_TESTS)

# What is newest changes by the day; where it is what the lock names, the whole suite has just run with it.
test-newest: $(VENV)/.installed-dev
	@$(COMPILE) --upgrade --extra dev --output-file $(VENV)/newest.txt
	@if cmp -s $(VENV)/newest.txt requirements/dev.txt; then echo "the lock has the newest version of every dependency"; else \
	  set -e; $(PYTHON) -m venv $(VENV)-newest; \
	  $(BIN)/uv pip sync --quiet --python $(VENV)-newest/bin/python --require-hashes $(VENV)/newest.txt; \
	  $(BIN)/uv pip install --quiet --python $(VENV)-newest/bin/python --no-deps --no-build-isolation -e .; \
	  $(VENV)-newest/bin/python -m pytest -q -n 3 --dist loadfile $(VERSION_TESTS); fi

check: $(VENV)/.installed-dev
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports

format: $(VENV)/.installed-dev
	$(BIN)/ruff format
	$(BIN)/ruff check --fix

hostile: $(VENV)/.installed-dev
	PYTHONPATH=tests $(BIN)/python -m hostile --write

fuzz: $(VENV)/.installed-dev
	PYTHONPATH=tests $(BIN)/python -m fuzz --seconds $(SECONDS) --seed $(SEED)

nightly: audit bench
	$(MAKE) fuzz SECONDS=3600 SEED=$$(date +%Y%m%d)

bench: $(VENV)/.installed-dev
	$(BIN)/python -m bench $(BENCH)

lock: $(VENV)/.installed-dev
	$(COMPILE) --upgrade --extra dev --output-file requirements/dev.txt
	$(COMPILE) --upgrade --extra test --resolution lowest-direct --output-file requirements/oldest.txt

audit: $(VENV)/.installed-dev
	$(BIN)/uv tool run pip-audit --disable-pip --require-hashes --requirement requirements/dev.txt

clean-venv:
	rm -rf $(VENV) $(VENV)-oldest $(VENV)-newest

# Debian keeps venv in a package of its own; as root we can get it, anybody else is told what to install.
$(BIN)/python:
	$(PYTHON) -c 'import sys; sys.exit("loadsim needs Python 3.11 or later" if sys.version_info < (3, 11) else 0)'
	@$(PYTHON) -c 'import ensurepip' 2>/dev/null || { [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null \
	  && apt-get update -qq && apt-get install -y -qq python3-venv; } \
	  || { echo "Python's venv module is missing: apt-get install python3-venv"; exit 1; }
	$(PYTHON) -m venv $(VENV)

$(VENV)/.installed: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[embedded,report]'
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
