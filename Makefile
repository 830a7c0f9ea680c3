# The verbs of DDL-CE. `make` is the whole main job: sources → channel → env → module → smoke test.
SHELL := /bin/bash
# What a user has set for other Pythons reaches none of ours, and no file is run before a recipe.
unexport PYTHONPATH PYTHONHOME PYTHONSTARTUP BASH_ENV ENV
PY := .venv/bin/python
# Whoever types `make` in a tree has chosen it, whomever it belongs to.
DDLCE := DDLCE_REPO="$${DDLCE_REPO:-$(CURDIR)}" .venv/bin/ddlce
ALL_BENCHES := $(sort $(patsubst tests/bench/bench_%.py,%,$(wildcard tests/bench/bench_*.py)))
BENCHES := $(ALL_BENCHES)
$(foreach name,$(filter-out $(ALL_BENCHES),$(BENCHES)),$(error \
  BENCHES: there is no benchmark "$(name)"; there are: $(ALL_BENCHES)))

# Tests wait as often as they compute: a worker more than processors, five at most.
SIDE_BY_SIDE := -n $(shell n=$$(nproc); echo $$(((n < 4 ? n : 4) + 1))) --dist loadfile

# A part of the project may have tests of one kind only: pytest ends with 5 where it finds none.
NONE_IS_FINE := $(if $(PART),|| [ $$? -eq 5 ])

.DEFAULT_GOAL := all
.PHONY: all bootstrap dist gpu full ppc64le test-ppc64le aarch64 test-aarch64 test test-unit test-full test-userlands test-gpu smoke bench lint tidy docs clean

all: bootstrap ## fetch, build, index, lock, install, write the module, smoke-test
	@$(DDLCE) all

bootstrap: ## system packages (installs them when it may) and the builder's venv
	@bash scripts/bootstrap.sh

full: bootstrap ## ddl-ce with transformers, Lightning, XGBoost, JAX and others, beside the other
	@$(DDLCE) all ddl-ce-full

dist: bootstrap ## a site to hand over, in dist/site: releases, ddlce (ENVS="ddl-ce ...", KEY=release key)
	@KEY="$(KEY)" ENVS="$(ENVS)" bash scripts/dist.sh

ppc64le: ## the release for POWER, cross-built and tested under emulation, beside linux-64's
	@bash scripts/bootstrap.sh ppc64le
	@$(DDLCE) all --platform linux-ppc64le

aarch64: ## the packages that there are for 64-bit Arm, cross-built and tested under emulation
	@bash scripts/bootstrap.sh aarch64
	@$(DDLCE) build --platform linux-aarch64
	@$(DDLCE) index --platform linux-aarch64

gpu: bootstrap ## the release for GPUs (CUDA 13.0), beside the other; downloads 2.8 GB
	@$(DDLCE) all ddl-ce-gpu
	@$(MAKE) --no-print-directory test-gpu

test-ppc64le: bootstrap ## what `make ppc64le` made, installed and run under emulation
	@bash scripts/bootstrap.sh ppc64le
	@$(PY) -m pytest -q $(addprefix tests/integration/test_,build_ppc64le.py emulate_run.py \
	  debs_built.py emulate_kernels.py power_cuda.py power_env.py)

test-aarch64: bootstrap ## what `make aarch64` made, installed and run under emulation
	@bash scripts/bootstrap.sh aarch64
	@$(PY) -m pytest -q tests/integration/test_aarch64.py tests/integration/test_emulate_kernels.py

test: bootstrap ## unit tests, then integration on the built channel and env (all, or PART=ddl)
	@echo "== unit tests"
	@$(PY) -m pytest -q $(SIDE_BY_SIDE) $(PART:%=--part %) tests/unit $(NONE_IS_FINE)
	@echo "== integration tests on the built channel and environment"
	@$(PY) -m pytest -q $(SIDE_BY_SIDE) $(PART:%=--part %) -m "not slow" --durations=15 \
	  tests/integration $(NONE_IS_FINE)

test-full: bootstrap ## everything, the long sweeps too
	@echo "== all tests"
	@$(PY) -m pytest tests

test-userlands: bootstrap ## what `make` built, on old systems: Debian 11, and a glibc limited to 2.28
	@$(PY) -m pytest -q tests/integration/test_userlands.py

test-gpu: bootstrap ## GPU code on a simulated CUDA: libddl, unmodified PyTorch, Horovod (a download of 500 MB)
	@$(PY) -m pytest -q $(SIDE_BY_SIDE) --durations=15 $(addprefix tests/integration/test_,cuda_variant.py cuda_simulated.py \
	  cuda_mutations.py torch_simulated.py ddl_torch_mutations.py \
	  horovod_simulated.py gpu_release.py gpu_research.py gpu_tensorflow.py)

smoke: bootstrap ## the smoke suite in the installed environment
	@$(DDLCE) smoke

bench: bootstrap ## benchmarks (all, or BENCHES="host lab"): tables, JSON and plots in tests/bench/out/, the bar
	@since=$$(date +%s); short=; for name in $(BENCHES); do script=tests/bench/bench_$$name.py; \
	  echo "== $$script"; $(PY) $$script || short="$$short $$script"; done; \
	echo "== plots"; $(PY) tests/bench/plots.py || short="$$short plots"; \
	echo "== the bar"; $(PY) tests/bench/bar.py --since $$since || short="$$short the-bar"; \
	if [ -n "$$short" ]; then echo "fell short or failed:$$short" >&2; exit 1; fi

lint: bootstrap ## ruff, mypy, clang-format, shellcheck, codespell, and the recipe linter
	@echo "== ruff"; .venv/bin/ruff check . && .venv/bin/ruff format --check .
	@echo "== mypy --strict"; .venv/bin/mypy
	@echo "== clang-format"; bash scripts/clang-format.sh
	@echo "== shellcheck"; .venv/bin/shellcheck -S warning $$(git ls-files '*.sh' .ci/run)
	@echo "== codespell"; .venv/bin/codespell
	@echo "== ddlce lint"; $(DDLCE) lint

tidy: bootstrap ## clang-tidy on libddl, with the headers of the installed environment: minutes
	@bash scripts/clang-tidy.sh

docs: bootstrap ## check what the docs name, and build them as a site in build/site
	@echo "== docs"
	@$(PY) -m pytest -q tests/unit/test_docs.py tests/unit/test_prose.py
	@bash scripts/docs/build.sh

clean: ## remove what `make` wrote in this tree; the cache and the environments stay
	@echo "removing .venv, build and the published channel"
	@rm -rf .venv build channel/linux-* channel/noarch
