# run: see loadsim work, on a mail server that is started for it.  test: everything that proves it.  check: style, types, layers.
# hostile: run each fault of a mail server by itself, and write the tables of docs/explanation/reliability.md.
# bench: what loadsim costs on this machine; BENCH=--full for longer, with Dovecot, and imaptest if IMAPTEST is its path.
VENV ?= .venv
PYTHON ?= python3
BIN = $(VENV)/bin

.PHONY: run test check format hostile bench clean-venv

run: $(VENV)/.installed
	$(BIN)/loadsim run quickstart

test: $(VENV)/.installed-dev
	sh tests/install-mail-servers.sh || [ $$? -eq 3 ]
	$(BIN)/python -m pytest -n 3 --dist loadfile

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

bench: $(VENV)/.installed-dev
	$(BIN)/python -m bench $(BENCH)

clean-venv:
	rm -rf $(VENV)

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

$(VENV)/.installed-dev: $(BIN)/python pyproject.toml
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	@touch $@ $(VENV)/.installed
