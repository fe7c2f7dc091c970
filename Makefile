# make demo   what it does, shown on a real tree of files
# make test   every check, and the tests of every part on real engines; make test-full: all tests
# make runtime   the package in .venv, with its dependencies and nothing for its development
# make lint   ruff, mypy, rustfmt and clippy alone; make coverage: the test suite, with the lines that it misses
# make torture   crashes, killed processes and faults in full; make mutants: defects that the tests must find
# make fuzz   the native core's parsers under coverage-guided fuzzing: RUNS executions of each target
# make house  measures of the code's structure
# make bench  every figure of docs/performance.md, written there; make bench-quick takes minutes and writes nothing
# make bench-layouts   the measured figures of docs/layouts.md, written there
# Each sets up what it needs: .venv, the native build, .engines.

SHELL := /bin/bash
.SHELLFLAGS := -euo pipefail -c
.DELETE_ON_ERROR:
.NOTPARALLEL:

export PATH := $(CURDIR)/.venv/bin:$(PATH):$(HOME)/.cargo/bin
export VIRTUAL_ENV := $(CURDIR)/.venv
export CARGO_TARGET_DIR := $(CURDIR)/target
unexport CONDA_PREFIX PYTHONHOME PYTHONPATH
# Workers, and the processes that tests start, compile each module once.
unexport PYTHONDONTWRITEBYTECODE

VENV := .venv/.stamp-packages
RUNTIME := .venv/.stamp-runtime
NATIVE := .venv/.stamp-native
DEMO := .venv/.stamp-demo
ENGINES := .engines/.stamp
BENCH := .venv/.stamp-bench
CANNED := target/canned/release/canned
# Dependencies whose build does not depend on the Python interpreter: of pyo3, the macros alone.
CRATES = $(shell sed -n '/^\[dependencies\]/,/^$$/s/^\([a-z0-9-]*\) = .*/-p \1/p' Cargo.toml \
	| sed 's/pyo3$$/pyo3-macros/')
SOURCES := $(shell find rust -name '*.rs') Cargo.toml Cargo.lock pyproject.toml
# More workers than cores: many tests wait for an engine. Tests of one Spark session stay in one.
WORKERS ?= 4
PYTEST := .ci/pytest -n $(WORKERS) --dist loadgroup
RUNS ?= 1000000

.PHONY: help venv build runtime engines lint lint-python lint-rust test-rust checks collect test test-full coverage torture mutants fuzz demo bench bench-quick bench-layouts lint-bench house crates clean always

help:
	@sed -n '/^$$/q;s/^# //p' Makefile

venv: $(VENV)
build: $(VENV) $(NATIVE)
runtime: $(NATIVE)
engines: $(ENGINES)

$(VENV): pyproject.toml .ci/venv .ci/system
	@.ci/venv
	@touch $@ $(RUNTIME)

# Part of what $(VENV) installs, and enough to build and run the package: `make demo` needs no more.
$(RUNTIME): pyproject.toml .ci/venv .ci/system
	@.ci/venv runtime
	@touch $@

# Order only: all stamps are inside .venv, and a new .venv has none.
$(NATIVE): $(SOURCES) .ci/rust | $(RUNTIME)
	@.ci/rust
	@echo "s3k: building the native core"
	@PIP_QUIET=1 .venv/bin/maturin develop --release --quiet
	@touch $@ $(DEMO)

# The crates that the native core depends on are compiled while packages are installed; maturin
# waits for the lock of the build directory.
crates:
	@[ -e $(DEMO) ] || { .ci/rust; \
	(cargo build --profile demo --locked $(CRATES) >/dev/null 2>&1 </dev/null &); }

# A native core that is optimised less, unless the other one has been built already.
$(DEMO): $(SOURCES) .ci/rust | crates $(RUNTIME)
	@.ci/rust
	@echo "s3k: building the native core for the demonstration"
	@PIP_QUIET=1 .venv/bin/maturin develop --profile demo --quiet
	@rm -f $(NATIVE)
	@touch $@

# The stamp is made by the script, and only when nothing is missing.
$(ENGINES): $(VENV) .ci/engines .ci/system tests/engines/DynamoDbLocal.java
	@.ci/engines

ifeq ($(wildcard s3k_async/_native*.so),)
$(NATIVE) $(DEMO): always
always:
endif

lint: lint-python lint-rust

lint-python: $(VENV) $(NATIVE)
	@.venv/bin/ruff check
	@.venv/bin/ruff format --check
	@.venv/bin/mypy

lint-rust: $(NATIVE)
	@cargo fmt --check
	@cargo fmt --check --manifest-path fuzz/Cargo.toml
	@cargo clippy --quiet --locked --all-targets -- -D warnings

test-rust: $(NATIVE)
	@cargo test --quiet --locked

# mypy has one thread: it runs beside the compiler. So does the collection of the tests, which
# compiles them: each worker would do it for itself otherwise.
checks: $(VENV) $(NATIVE)
	@$(MAKE) --no-print-directory lint-rust test-rust & rust=$$!; \
	$(MAKE) --no-print-directory collect & tests=$$!; \
	$(MAKE) --no-print-directory lint-python && wait $$rust && wait $$tests || { wait; exit 1; }

collect: $(VENV) $(NATIVE)
	@found=$$(.venv/bin/python -m pytest --collect-only -qq) || { echo "$$found"; exit 1; }

test: checks $(ENGINES)
	@$(PYTEST) -m "not slow"

test-full: export S3K_TEST_LEVEL := full
test-full: checks $(ENGINES)
	@$(PYTEST)

# A report on the terminal, and one in target/coverage that shows the lines.
coverage: export COVERAGE_FILE := $(CURDIR)/target/.coverage
coverage: $(VENV) $(NATIVE) $(ENGINES)
	@$(PYTEST) -m "not slow" --cov=s3k_async --cov-branch \
		--cov-report=term:skip-covered --cov-report=html:target/coverage

torture: export S3K_TEST_LEVEL := torture
torture: $(VENV) $(NATIVE) $(ENGINES)
	@.ci/pytest -n 2 --dist worksteal tests/torture

mutants: $(VENV) $(NATIVE) $(ENGINES)
	@.venv/bin/python -u -m tests.torture.mutants

fuzz: $(NATIVE)
	@.ci/fuzz $(RUNS)

house: $(VENV) $(NATIVE)
	@.venv/bin/python -m benchmarks.house

demo: $(DEMO)
	@.venv/bin/python docs/demo.py $(SRC)

$(BENCH): pyproject.toml .ci/bench $(VENV)
	@.ci/bench
	@touch $@

$(CANNED): $(wildcard benchmarks/canned/src/*.rs benchmarks/canned/src/bin/*.rs) benchmarks/canned/Cargo.toml benchmarks/canned/Cargo.lock .ci/rust
	@.ci/rust
	@CARGO_TARGET_DIR=$(CURDIR)/target/canned cargo build --release --quiet --locked --manifest-path benchmarks/canned/Cargo.toml
	@touch $@

bench: $(VENV) $(NATIVE) $(ENGINES) $(BENCH) $(CANNED)
	@.venv/bin/python -m benchmarks --write

bench-quick: $(VENV) $(NATIVE) $(ENGINES) $(BENCH) $(CANNED)
	@.venv/bin/python -m benchmarks --quick

# Without the canned server; S3A comes from Maven Central at the first run.
bench-layouts: $(VENV) $(NATIVE) $(ENGINES) $(BENCH)
	@.venv/bin/python -m benchmarks --only layouts --write

lint-bench: $(CANNED)
	@cargo fmt --check --manifest-path benchmarks/canned/Cargo.toml
	@CARGO_TARGET_DIR=$(CURDIR)/target/canned cargo clippy --quiet --locked --all-targets --manifest-path benchmarks/canned/Cargo.toml -- -D warnings
	@CARGO_TARGET_DIR=$(CURDIR)/target/canned cargo test --quiet --locked --manifest-path benchmarks/canned/Cargo.toml

clean:
	@rm -rf .venv .engines target dist .pytest_cache .mypy_cache .ruff_cache .hypothesis
	@rm -f s3k_async/_native*.so
