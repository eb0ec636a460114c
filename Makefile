# The commands of this project; `make help` lists them. Each sets up what it needs first.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DEFAULT_GOAL := help
.PHONY: help demo test test-all test-unit fuzz lint reproduce down clean update-lock venv

BIN := .venv/bin
SETUP := scripts/setup.sh
# The demo's base may be made on the spot: it keeps a lock of its own.
DEMO := $(BIN)/rocm-torch --lock .rocm-torch/demo.lock
LANE := lane=cpu

SHELL_FILES := scripts/setup.sh .ci/run images/rootfs/usr/local/bin/rocm-torch-entrypoint \
    images/rootfs/usr/local/bin/rocm-torch-selftest \
    $(addprefix images/rootfs/usr/lib/rocm-torch/,setup-user find-python wrap-python fetch-key) \
    images/rootfs/etc/profile.d/rocm-torch.sh images/tools/as-user \
    tests/engine/cluster/start docs/examples/two_nodes.sbatch

help: ## list these commands
	@awk -F ':.*## ' '/^[a-z-]+:.*## / { printf "make %-12s %s\n", $$1, $$2 }' Makefile

demo: venv ## build, test, describe and publish the CPU images to a registry on loopback
	@$(SETUP) tools
	@$(SETUP) with-engine bash -euo pipefail -c ' \
	    $(DEMO) lock --update $(LANE); \
	    registry=$$($(DEMO) registry up); \
	    $(DEMO) release --registry "$$registry" $(LANE)'

test: lint ## everything that must pass, the tests against the real engine included
	@$(SETUP) tools
	$(SETUP) with-engine --stop-after $(BIN)/pytest -n 2 --dist loadfile -m "not slow"

test-all: lint ## the same and the slow tests: compilers, podman, benchmarks on the CPU, failing builds
	@$(SETUP) tools
	@$(SETUP) podman
	$(SETUP) with-engine --stop-after $(BIN)/pytest -n 2 --dist loadfile

test-unit: venv ## the tests that need no engine
	$(BIN)/pytest -n 2 --dist loadfile tests/unit

fuzz: venv ## the matrix under 100,000 hostile documents, the doctor under 25,000 random hosts
	HYPOTHESIS_PROFILE=long $(BIN)/pytest -n 2 --dist load tests/unit/test_matrix_fuzz.py
	HYPOTHESIS_PROFILE=long $(BIN)/pytest tests/unit/test_doctor_rules.py -k no_host_gives

lint: venv ## style, types, import directions, rendered Dockerfiles
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports
	$(BIN)/rocm-torch render --check
	$(BIN)/rocm-torch ci github --check
	$(BIN)/hadolint images/*/Dockerfile
	$(BIN)/shellcheck $(SHELL_FILES)

reproduce: venv ## build the CPU images twice without cache and compare images and SBOMs
	@$(SETUP) tools
	@$(SETUP) with-engine bash -euo pipefail -c ' \
	    $(DEMO) lock --update $(LANE); \
	    $(DEMO) reproduce $(LANE)'

down: ## stop the registry, and the engine if this working copy started it
	@if [[ -x $(BIN)/rocm-torch ]]; then $(BIN)/rocm-torch registry down || true; fi
	@$(SETUP) stop

clean: down ## stop, and remove what runs left in this working copy; installed packages stay
	rm -rf .rocm-torch .pytest_cache .mypy_cache .ruff_cache .import_linter_cache .hypothesis

update-lock: venv ## resolve requirements-dev.lock again, from the public index alone
	@[[ -x .rocm-torch/uv/bin/uv ]] || $(BIN)/python -m venv .rocm-torch/uv
	@.rocm-torch/uv/bin/pip install --quiet --upgrade uv
	env -i PATH="$$PATH" HOME="$$HOME" $${SSL_CERT_FILE:+SSL_CERT_FILE="$$SSL_CERT_FILE"} \
	    $${HTTPS_PROXY:+HTTPS_PROXY="$$HTTPS_PROXY"} \
	    .rocm-torch/uv/bin/uv pip compile --quiet --no-config --upgrade --universal \
	    --python-version 3.11 --generate-hashes --default-index https://pypi.org/simple \
	    --extra dev --custom-compile-command 'make update-lock' \
	    --output-file requirements-dev.lock pyproject.toml

venv:
	@$(SETUP) python
