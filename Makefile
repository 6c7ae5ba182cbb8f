# Everything runs in .venv, which is made on first use and again when pyproject.toml changes.
# A torch that PYTHON already has is used by:  make demo VENV_FLAGS=--system-site-packages

PYTHON ?= python3
VENV_FLAGS ?=
DEMO ?= --fault leak
VERDICTS ?=
OVERFLOWS ?=
HOTSPOTS ?=
# Three at once on two cores: a third of a test is waiting.  More only make the trainings start more slowly.
TESTERS ?= 3
CYCLES ?= 2000
KILLS ?= 300
# 0: as long as it takes.
MINUTES ?= 0
DEVICE ?= cpu
VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check --quiet install
HAS_TORCH := $(BIN)/python -c 'import importlib.util as u, sys; sys.exit(u.find_spec("torch") is None)'

.DEFAULT_GOAL := help
.PHONY: help demo test verdicts overflows hotspots bench soak proofs screenshots clean

help:  ## show this list
	@sed -n 's/^\([a-z]*\):.*## /  make \1\t/p' $(MAKEFILE_LIST)

demo: $(VENV)/.demo  ## attach to a small training that leaks, on this machine, without an NPU
	$(BIN)/ascend-tui demo $(DEMO)

test: $(VENV)/.test  ## format, lint, types, layers, tests: what has to pass before a merge
	$(BIN)/ruff format --check
	$(BIN)/ruff check
	$(BIN)/mypy
	$(BIN)/lint-imports > $(VENV)/layers.log || { cat $(VENV)/layers.log; exit 1; }
	$(BIN)/python -m tests.cann_sim.build
	$(BIN)/python -m pytest -n $(TESTERS) --dist loadfile --no-loadscope-reorder

verdicts: $(VENV)/.test  ## attach to trainings with a known truth and print what the memory verdict says: VERDICTS=options
	$(BIN)/python -m tests.verdicts $(VERDICTS)

overflows: $(VENV)/.test  ## attach to trainings whose numbers go bad in a known place and print what is said: OVERFLOWS=options
	$(BIN)/python -m tests.overflows $(OVERFLOWS)

hotspots: $(VENV)/.test  ## attach to trainings whose time goes to a known place and print what is said: HOTSPOTS=options
	$(BIN)/python -m tests.hotspots $(HOTSPOTS)

bench: $(VENV)/.bench  ## measure what an attach costs a training, peers beside
	$(BIN)/python -m bench

soak: $(VENV)/.test  ## attach, kill, detach again and again: CYCLES KILLS MINUTES DEVICE=cpu|npu
	$(BIN)/python -m soak --cycles $(CYCLES) --kills $(KILLS) --minutes $(MINUTES) --device $(DEVICE)

proofs: $(VENV)/.test  ## print the table of versions, the matrix of states and the times of ranks
	$(BIN)/python -m soak.versions
	$(BIN)/python -m soak.states
	$(BIN)/python -m soak.ranks

screenshots: $(VENV)/.test  ## write screenshots/ anew from real runs
	$(BIN)/python -m tests.tui.screenshots

clean:  ## remove what the other targets made
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache
	find ascend_tui plugins tests -name __pycache__ -type d -prune -exec rm -rf {} +

$(BIN)/python:
	@$(PYTHON) -m venv $(VENV_FLAGS) $(VENV) || { rm -rf $(VENV); exit 1; }
	@$(PIP) 'pip>=23' || { rm -rf $(VENV); exit 1; }

# The wheels of torch are large: an environment that has one keeps it.
$(VENV)/.demo: pyproject.toml | $(BIN)/python
	$(HAS_TORCH) || $(PIP) torch==2.13.0
	$(PIP) -e '.[demo]'
	@touch $@

$(VENV)/.test: pyproject.toml | $(BIN)/python
	$(PIP) -e '.[test]' 'setuptools>=77'
	@touch $@

$(VENV)/.bench: $(VENV)/.test
	$(PIP) -e '.[bench]'
	@touch $@
