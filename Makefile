# Everything that is needed besides python3 (3.11 or newer, with venv), make and a package index is
# installed by the targets themselves, into .venv.

PYTHON ?= python3
UV_VERSION := 0.13.9
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
PYTEST := $(BIN)/pytest -n 2 --dist loadfile --durations 15
export UV_PYTHON := $(CURDIR)/$(BIN)/python
export UV_SYSTEM_CERTS := 1

.PHONY: help install serve test long lint bench lock packages clean

help:
	@echo "make serve    the payment service on http://127.0.0.1:8000, SQLite, simulated rail"
	@echo "make test     style, types, import rule and every test with small counts"
	@echo "make long     every test with full counts"
	@echo "make lint     style, types and import rule alone"
	@echo "make bench    measure payments against a bare answer"
	@echo "make install  the environment alone; make lock renews requirements.lock; make clean removes both"

install: $(READY)

# The lock holds a hash for every file, the project itself is then added without asking any index.
$(READY): requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || { \
	  echo "Nonbis needs Python 3.11 or newer, but this is: $$($(PYTHON) --version 2>&1). Name another one: make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  echo "python3 has no venv; on Debian and Ubuntu: apt-get install python3-venv"; exit 1; }
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check uv==$(UV_VERSION)
	$(BIN)/uv pip install --quiet --require-hashes -r requirements.lock
	$(BIN)/uv pip install --quiet --no-index --no-deps --no-build-isolation -e .
	@touch $@

serve: $(READY)
	$(BIN)/nonbis serve

test: $(READY) packages lint
	$(PYTEST)

long: $(READY) packages lint
	NONBIS_LONG=1 $(PYTEST) --timeout 3600

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports

bench: $(READY)
	$(BIN)/python -m bench.http

lock:
	$(BIN)/uv pip compile --universal --python-version 3.11 --all-extras --generate-hashes --no-header \
	  --no-emit-index-url --no-annotate --quiet pyproject.toml -o requirements.lock

# What tests need of the distribution; installed only where that is possible and something is missing.
packages:
	@wanted=$$(sed 's/#.*//' deploy/debian-packages.txt | xargs); \
	missing=$$(for one in $$wanted; do dpkg -s $$one >/dev/null 2>&1 || echo $$one; done); \
	if [ -z "$$missing" ]; then :; \
	elif [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null; then \
	  apt-get update -qq && DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends $$missing; \
	else echo "not installed, tests that need them are skipped by name:" $$missing; fi

clean:
	rm -rf $(VENV) build dist .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache mutants
