# Coinop: `make` alone lists the targets. Everything happens in .venv, which is made when needed.

PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
GAME ?= pong
EMULATOR ?= ale
EMULATORS ?= 2
N ?= 2
SERVER ?= 127.0.0.1:9797
ARGS ?=
PIP_ARGS ?=

.DEFAULT_GOAL := help
.PHONY: help install run emulate mame fceux eval games test check lint audit format docs screenshot flamegraph bench soak fuzz clean

help: ## list the targets
	@echo "Coinop: train agents on games that run in emulators"
	@echo
	@grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST) | sed -E 's/^([a-z]+):[^#]*## /  make \1|/' | column -t -s '|' 2>/dev/null \
		|| grep -hE '^[a-z]+:.*##' $(MAKEFILE_LIST)
	@echo
	@echo '  make run EMULATOR=mame GAME=pong2600'
	@echo '  make mame GAME=pong2600 N=4 SERVER=192.168.1.5:9797'
	@echo '  make run GAME=breakout EMULATORS=4 ARGS="--batch-size 512"'

install: $(VENV)/.installed ## make the virtual environment and install what `make run` needs

run: $(VENV)/.installed ## start the server, its dashboard and EMULATORS (2) emulators playing GAME (pong)
	@$(BIN)/python main.py --run $(GAME) --launch $(EMULATOR):$(GAME)=$(EMULATORS) $(ARGS)

emulate: $(VENV)/.installed ## start N (2) emulators for a server that runs at SERVER (127.0.0.1:9797)
	@$(BIN)/python main.py emulate $(EMULATOR):$(GAME)=$(N) --server $(SERVER) $(ARGS)

mame: emulate ## the same with MAME, playing GAME (pong2600)
mame: EMULATOR := mame
mame: GAME := pong2600

fceux: emulate ## the same with FCEUX, playing GAME (catch)
fceux: EMULATOR := fceux
fceux: GAME := catch

eval: $(VENV)/.installed ## evaluate the agent of run GAME (pong): 20 greedy episodes
	@$(BIN)/python main.py eval --run $(GAME) $(ARGS)

games: $(VENV)/.installed ## list the games, the emulators they run under, and what is missing
	@$(BIN)/python main.py games

test: $(VENV)/.installed-dev ## run all tests; with ARGS, what they tell pytest to
ifeq ($(ARGS),)
	@$(BIN)/python -m pytest -n 2 --dist worksteal -m "not alone"
	@$(BIN)/python -m pytest -m alone
else
	@$(BIN)/python -m pytest $(ARGS)
endif

check: lint test ## formatting, lint, types, import rules, tests

lint: $(VENV)/.installed-dev ## the same without the tests
	$(BIN)/ruff format --check .
	$(BIN)/ruff check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

audit: $(VENV)/.installed-dev ## look for known holes in the code (bandit) and in the dependencies (pip-audit)
	$(BIN)/bandit -q -c pyproject.toml -r .
	$(BIN)/pip-audit --disable-pip --no-deps -r requirements.txt

format: $(VENV)/.installed-dev ## format the code and fix what lint can fix
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

docs: $(VENV)/.installed ## write the pages that come from the code
	$(BIN)/python -m docs.generate

screenshot: $(VENV)/.installed ## draw docs/dashboard.svg from a live run of SECONDS (60)
	$(BIN)/python -m docs.screenshot $(SECONDS)

flamegraph: $(VENV)/.installed-dev ## draw docs/flamegraph.svg: where the time goes while 16 clients play and training runs
	OMP_NUM_THREADS=1 OPENBLAS_NUM_THREADS=1 MKL_NUM_THREADS=1 $(BIN)/python -m docs.flamegraph $(SECONDS)

bench: $(VENV)/.installed ## measure this machine (python -m bench --help has more)
	$(BIN)/python -m bench serve
	$(BIN)/python -m bench hold

soak: $(VENV)/.installed ## a server among faults for MINUTES (30): nothing may be lost, nothing may leak
	@$(BIN)/python -m bench soak --minutes $(or $(MINUTES),30)

fuzz: $(VENV)/.installed-fuzz ## look for input that breaks a rule, SECONDS (60) for each target
	@for target in protocol checkpoint replay; do \
		echo "fuzz: $$target"; $(BIN)/python -m fuzz $$target --seconds $(or $(SECONDS),60) || exit 1; done

clean: ## remove the virtual environment and caches; runs/ stays
	rm -rf $(VENV) .mypy_cache .ruff_cache .pytest_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

$(VENV)/.made:
	@command -v $(PYTHON) >/dev/null || { echo "Coinop needs Python 3.11 or newer as $(PYTHON); try make PYTHON=python3.12"; exit 1; }
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "Coinop needs Python 3.11 or newer, $(PYTHON) is older; try make PYTHON=python3.12"; exit 1; }
	@echo "making the virtual environment in $(VENV)"
	@$(PYTHON) -m venv $(VENV)
	@touch $@

$(VENV)/.installed: $(VENV)/.made requirements.txt
	@echo "installing what Coinop needs; torch is large, so the first time takes a minute or more"
	@$(BIN)/pip install --disable-pip-version-check $(PIP_ARGS) -r requirements.txt
	@touch $@

$(VENV)/.installed-dev: $(VENV)/.installed requirements-dev.txt requirements-bench.txt requirements-cluster.txt
	@echo "installing the tools of the tests"
	@$(BIN)/pip install --disable-pip-version-check $(PIP_ARGS) -r requirements-dev.txt
	@touch $@

$(VENV)/.installed-fuzz: $(VENV)/.installed requirements-fuzz.txt
	@echo "installing what fuzzing needs"
	@$(BIN)/pip install --disable-pip-version-check $(PIP_ARGS) -r requirements-fuzz.txt
	@touch $@
