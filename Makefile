# make demo   what it does, shown on a real tree of files
# make test   every check and every test
# Each sets up what it needs: .venv, the native build, .engines.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:

export PATH := $(CURDIR)/.venv/bin:$(PATH):$(HOME)/.cargo/bin
export VIRTUAL_ENV := $(CURDIR)/.venv
export CARGO_TARGET_DIR := $(CURDIR)/target
unexport CONDA_PREFIX PYTHONHOME PYTHONPATH

VENV := .venv/.stamp-packages
NATIVE := .venv/.stamp-native
ENGINES := .engines/.stamp
SOURCES := $(shell find rust -name '*.rs') Cargo.toml Cargo.lock pyproject.toml
PYTEST := .venv/bin/python -m pytest
WORKERS ?= 2

.PHONY: help venv build engines lint lint-python lint-rust test-rust test test-full demo bench clean always

help:
	@sed -n 's/^# //p' Makefile

venv: $(VENV)
build: $(NATIVE)
engines: $(ENGINES)

$(VENV): pyproject.toml .ci/venv .ci/system
	@.ci/venv
	@touch $@

$(NATIVE): $(VENV) $(SOURCES) .ci/rust
	@.ci/rust
	@echo "s3k: building the native core"
	@PIP_QUIET=1 .venv/bin/maturin develop --release --quiet
	@touch $@

# The stamp is made by the script, and only when nothing is missing.
$(ENGINES): $(VENV) .ci/engines .ci/system tests/engines/DynamoDbLocal.java
	@.ci/engines

ifeq ($(wildcard s3k_async/_native*.so),)
$(NATIVE): always
always:
endif

lint: lint-python lint-rust

lint-python: $(NATIVE)
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy

lint-rust: $(NATIVE)
	@cargo fmt --check
	@cargo clippy --quiet --locked --all-targets -- -D warnings

test-rust: $(NATIVE)
	@cargo test --quiet --locked

test: lint test-rust $(ENGINES)
	@$(PYTEST) -n $(WORKERS) --dist worksteal -m "not slow"

test-full: export S3K_TEST_ROUNDS ?= 200
test-full: lint test-rust $(ENGINES)
	@$(PYTEST) -n $(WORKERS) --dist worksteal

demo: $(NATIVE)
	@.venv/bin/python docs/demo.py $(SRC)

bench: $(NATIVE) $(ENGINES)
	@for each in benchmarks/*.py; do echo "== $$each"; .venv/bin/python "$$each"; done

clean:
	@rm -rf .venv .engines target dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@rm -f s3k_async/_native*.so
