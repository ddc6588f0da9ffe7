# Targets build their own environment in .venv and redo it only when the pins change. Of programs they take what POSIX has.
SCALE ?= mini
SEEDS ?= 1
VENV ?= .venv
EVAL ?=
ENGINE ?= xpk
ROOT ?= runs
OUT ?= build
PAPER ?=

PY := $(VENV)/bin/python
digest = $(or $(shell cat requirements/$(1).txt requirements/install.sh | cksum | cut -d ' ' -f 1),$(error no cksum here))
RUN_ENV := $(VENV)/.run-$(call digest,run)
TEST_ENV := $(VENV)/.test-$(call digest,test)
NOTEBOOK_ENV := $(VENV)/.notebook-$(call digest,notebook)
XPK_VENV := .venv-xpk
XPK_ENV := $(XPK_VENV)/.xpk-$(call digest,xpk)
PEERS_VENV := .venv-peers
PEERS_ENV := $(PEERS_VENV)/.peers-$(call digest,peers)
# A path as one word of the shell, with whatever stands in it.
quoted = '$(subst ','\'',$(1))'
WHERE := --scale $(SCALE) --seeds $(SEEDS) --root $(call quoted,$(ROOT))
# Of what is only shown: as many seeds as there are, unless SEEDS says how many.
SHOWN := --scale $(SCALE) $(if $(filter-out file,$(origin SEEDS)),--seeds $(SEEDS)) --root $(call quoted,$(ROOT)) --out $(call quoted,$(OUT))
EVALUATION := $(if $(EVAL),--eval $(EVAL))
OF := $(if $(PAPER),--paper $(call quoted,$(PAPER)))
unexport PYTHONDONTWRITEBYTECODE

# Tables and figures: with downstream scores, without, those that need no run, and those of papers beside that don't.
SCORED := table1 table3 table5 table6 table7 figure5 figure11
DRAWN := figure1 figure2 figure3 figure4 figure7 figure9 figure14 figure15 figure16
CALCULATED := gap eager_table5 scaling_laws_accounts scaling_laws_inconsistencies scaling_laws_figure6 scaling_laws_table6 scaling_laws_table7 scaling_laws_table8 scaling_laws_table9 scaling_laws_table10 scaling_laws_table11 scaling_laws_table12 scaling_laws_table13
SPECS := $(patsubst experiments/streaming/%.py,%,$(wildcard experiments/streaming/*.py))
# Of a paper beside, with its name before them.
BESIDE := $(filter-out experiments/streaming/% %/__init__.py %/base.py,$(wildcard experiments/*/*.py))
SPECS += $(subst /,_,$(patsubst experiments/%.py,%,$(BESIDE)))
TRAINED := $(filter-out __init__ base table2 table4 tuning $(SCORED) $(DRAWN) $(CALCULATED),$(SPECS))
.PHONY: $(SCORED) $(TRAINED) $(DRAWN) $(CALCULATED)

.DEFAULT_GOAL := help
.PHONY: help env paper paper-plan report notebooks compile-paper table5 table2 table4 figures-simulated accounts inconsistencies compiled results miniature claims tuning test test-fast smoke test-slow test-launch torture lint bench bench-peers clean

help:  ## this list
	@awk -F ':.*## ' '/^[a-z0-9%-]+:.*## / {printf "  %-17s  %s\n", $$1, $$2}' $(MAKEFILE_LIST)
	@printf '  %s\n' 'The same for each of:' '$(filter-out table5,$(SCORED))' '$(TRAINED)' '$(DRAWN)' '$(CALCULATED)'

env: $(RUN_ENV)  ## the virtual environment alone

$(RUN_ENV):
	@requirements/install.sh $(VENV) requirements/run.txt
	@rm -f $(VENV)/.run-*; touch $@

$(TEST_ENV): $(RUN_ENV)
	@requirements/install.sh $(VENV) requirements/test.txt
	@rm -f $(VENV)/.test-*; touch $@

$(NOTEBOOK_ENV): $(RUN_ENV)
	@requirements/install.sh $(VENV) requirements/notebook.txt
	@rm -f $(VENV)/.notebook-*; touch $@

table5:  ## Table 5 and Figure 5 in miniature: train, evaluate, show (SCALE, SEEDS, EVAL=full: whole sets)

paper: $(RUN_ENV)  ## the whole paper: train what is missing, one seed first, evaluate, show (SCALE, SEEDS; PAPER=scaling-laws: another one)
	@$(PY) -m repro run all $(OF) $(WHERE)
	@$(PY) -m repro evaluate all $(OF) $(WHERE) $(EVALUATION)
	@$(PY) -m repro build all $(OF) $(SHOWN) $(EVALUATION)
	@$(PY) -m repro report $(OF) $(SHOWN) $(EVALUATION)

paper-plan: $(RUN_ENV)  ## what the whole paper costs: runs, tokens, FLOPs, bytes, chip-hours (SCALE, SEEDS, PAPER)
	@$(PY) -m repro plan all $(OF) --scale $(SCALE) --seeds $(SEEDS)

report: $(RUN_ENV)  ## one page of everything from the runs there are: build/report.html (SCALE, SEEDS: as many as there are; PAPER)
	@$(PY) -m repro report $(OF) $(SHOWN) $(EVALUATION)

notebooks: $(NOTEBOOK_ENV)  ## the notebooks of analysis/notebooks in a browser: one cell to change for your own runs
	@PYTHONPATH=$(call quoted,$(CURDIR)) $(PY) -m jupyterlab --notebook-dir analysis/notebooks

$(SCORED): $(RUN_ENV)  # train, evaluate, show
	@$(PY) -m repro run $@ $(WHERE) $(EVALUATION)
	@$(PY) -m repro evaluate $@ $(WHERE) $(EVALUATION)
	@$(PY) -m repro build $@ $(WHERE) --out $(call quoted,$(OUT)) $(EVALUATION)

$(TRAINED): $(RUN_ENV)  # train, show
	@$(PY) -m repro run $@ $(WHERE)
	@$(PY) -m repro build $@ $(WHERE) --out $(call quoted,$(OUT))

$(DRAWN): $(RUN_ENV)  # no run needed
	@$(PY) -m repro build $@ --out $(call quoted,$(OUT))

$(CALCULATED): $(RUN_ENV)  # no run needed; those there are stand beside
	@$(PY) -m repro build $@ $(SHOWN)

tuning: $(RUN_ENV)  ## learning rates at mini scale: the declared grid, then its table
	@$(PY) -m repro run $@ $(WHERE)
	@$(PY) -m repro build $@ $(WHERE) --out $(call quoted,$(OUT))

table2: $(RUN_ENV)  ## Table 2: architectures, derived
	@$(PY) -m repro plan table2 --scale paper

table4: $(RUN_ENV)  ## Table 4: compute utilisation, cell by cell
	@$(PY) -m repro build $@ --out $(call quoted,$(OUT))

figures-simulated: $(RUN_ENV)  ## all simulated figures, PNG and SVG
	@$(PY) -m repro build $@ --out $(call quoted,$(OUT))

accounts: $(RUN_ENV)  ## hours and bytes of Tables 1 and 7, memory of section 2.5
	@$(PY) -m repro build $@ --out $(call quoted,$(OUT))

inconsistencies: $(RUN_ENV)  ## where the paper disagrees with itself, each with its calculation
	@$(PY) -m repro build $@ --out $(call quoted,$(OUT))

compile-paper: $(TEST_ENV)  ## a night: every run compiled for TPU slices by the rule (EXPERIMENT; MISSING=1: what data/results lacks)
	@$(PY) -m repro compile $(or $(EXPERIMENT),all) --out $(call quoted,$(OUT)) $(if $(MISSING),--missing)

compiled: $(RUN_ENV)  ## runs of the paper compiled for TPU slices: memory, bytes, overlap (from data/results)
	@$(PY) -m repro build $@ --out $(call quoted,$(OUT))

results: $(RUN_ENV)  ## docs/results.md from data/results, and the lines of it that README.md repeats
	@$(PY) -m repro build $@ --out docs

miniature: $(RUN_ENV)  ## docs/miniature.md: the miniature beside the paper's runs, as numbers without a unit
	@$(PY) -m repro build $@ --out docs

claims: $(RUN_ENV)  ## where each statement of the paper stands: calculated, and decided from the runs there are (SEEDS: as many as there are; PAPER)
	@$(PY) -m repro build $@ $(OF) $(SHOWN)

%-plan: $(RUN_ENV)  ## the runs of an experiment without running them (SCALE, SEEDS)
	@$(PY) -m repro plan $* --scale $(SCALE) --seeds $(SEEDS)

.PHONY: xpk test-launch

%-launch: $(RUN_ENV)  ## the runs of an experiment elsewhere, as launch.toml says (SCALE; ENGINE: xpk or slurm; DRY_RUN=1: manifests only)
	@test ! -e launch.toml || test $(ENGINE) != xpk || $(MAKE) -s xpk
	@$(PY) -m repro launch $* --engine $(ENGINE) --scale $(SCALE) --seeds $(SEEDS) $(if $(DRY_RUN),--dry-run --out $(call quoted,$(OUT)/launch))

xpk: $(XPK_ENV)  ## xpk, which launches on TPU pods, in an environment of its own

$(XPK_ENV):
	@requirements/install.sh $(XPK_VENV) requirements/xpk.txt
	@rm -f $(XPK_VENV)/.xpk-*; touch $@

test: $(TEST_ENV)  ## all tests but the slow ones, and the linters
	@$(VENV)/bin/ruff check -q . && $(VENV)/bin/ruff format -q --check .
	@$(PY) -m pytest -n 2 --dist worksteal -m "not slow"

# One worker more than cores: tests that wait for processes leave a core idle, and these need little memory.
test-fast: $(TEST_ENV)  ## the tests without compiled programs
	@$(PY) -m pytest -n 3 --dist worksteal -m "not slow and not compiles"

smoke: $(TEST_ENV)  ## every paper at SCALE=smoke, and whether every function of analysis was called
	@rm -rf $(call quoted,$(OUT)/coverage); mkdir -p $(call quoted,$(OUT)/coverage)
	@export COVERAGE_FILE=$(call quoted,$(OUT)/coverage/data); for paper in '' scaling-laws eager; do \
		$(MAKE) -s paper PAPER=$$paper SCALE=smoke PY="$(PY) -m coverage run --parallel-mode --source analysis" || exit 1; done
	@PYTHONPATH=. $(PY) tests/support/touched.py --root $(call quoted,$(ROOT)) --data $(call quoted,$(OUT)/coverage/data)

test-slow: $(TEST_ENV)  ## the larger drawn grids and long kills
	@$(PY) -m pytest -n 2 --dist worksteal -m slow

test-launch: $(TEST_ENV) $(XPK_ENV)  ## the manifests rendered again by xpk, against tests/golden/launch
	@$(PY) -m pytest -n 2 -m slow tests/launch/test_launch_manifests.py

torture: $(TEST_ENV)  ## kill, stop and starve two sweeps 200 times, and compare bit by bit (EVENTS, SEED)
	@PYTHONPATH=.:tests/support $(PY) tests/support/torture.py --events $(or $(EVENTS),200) $(if $(SEED),--seed $(SEED))

lint: $(TEST_ENV)  ## ruff and basedpyright
	@$(VENV)/bin/ruff check . && $(VENV)/bin/ruff format --check . && $(VENV)/bin/basedpyright

bench: $(RUN_ENV)  ## speed as ratios, measured in one run
	@$(PY) -m repro.commands.bench

bench-peers: $(RUN_ENV) $(PEERS_ENV)  ## our step beside PyTorch's and NanoDO's, into docs/speed.md (NANODO=path of its source; PyTorch is gigabytes to download)
	@$(PY) -m repro.commands.bench_peers --torch $(PEERS_VENV)/bin/python $(if $(NANODO),--nanodo $(call quoted,$(NANODO))) --write docs/speed.md

$(PEERS_ENV):
	@requirements/install.sh $(PEERS_VENV) requirements/peers.txt
	@rm -f $(PEERS_VENV)/.peers-*; touch $@

clean:  ## tables and figures; runs and tokens stay
	@rm -rf $(call quoted,$(OUT))
