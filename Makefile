# make demo: train, sample and look at a head, from nothing.   make test: every check, from nothing.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
INSTALLED := $(VENV)/.installed
CHECKED := $(VENV)/.checked
PAGE := gpt/page/assets
# One more than the cores, as tests of browsers and processes wait a part of their time; four at most.
WORKERS := $(shell n=$$(getconf _NPROCESSORS_ONLN); echo $$((n < 4 ? n + 1 : 4)))
LESSONS := $(patsubst docs/%.py,build/%.ipynb,$(wildcard docs/lessons/*.py))
DENO := DENO_NO_UPDATE_CHECK=1 $(BIN)/deno

# Compiled modules are kept: otherwise each worker and each process of a test compiles all of them again.
unexport PYTHONDONTWRITEBYTECODE

.PHONY: demo test check lint types layers tests site versions release lessons page pictures cli-docs interface soak fuzz planted planted-record all-variants bench clean
.DELETE_ON_ERROR:

PIP := $(BIN)/pip install --quiet --disable-pip-version-check --constraint constraints.txt

# What a user needs; versions that were tested are pinned in constraints.txt.
$(INSTALLED): pyproject.toml constraints.txt
	$(PYTHON) -m venv $(VENV)
	$(PIP) --editable .
	touch $@

# What the checks need, too.
$(CHECKED): $(INSTALLED)
	$(PIP) --editable '.[dev]'
	touch $@

demo: $(INSTALLED)
	$(BIN)/gptx train
	@echo; echo '$$ gptx sample --length 400 --prompt "The "'
	@$(BIN)/gptx sample --length 400 --prompt "The "
	@echo; echo '$$ gptx attn'
	@$(BIN)/gptx attn

test: $(CHECKED)
	@$(MAKE) --no-print-directory --jobs --output-sync=target check

check: lint types layers tests

lint: $(CHECKED)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(DENO) lint --config $(PAGE)/deno.json
	$(DENO) fmt --check --config $(PAGE)/deno.json
	$(DENO) check --config $(PAGE)/deno.json $(PAGE)/*.js $(PAGE)/*/*.js
	$(DENO) lint --config tests/deno.json
	$(DENO) fmt --check --config tests/deno.json
	$(DENO) check --config tests/deno.json $(shell find tests -name '*.js')

types: $(CHECKED)
	$(BIN)/mypy

layers: $(CHECKED)
	$(BIN)/lint-imports

tests: $(CHECKED)
	$(BIN)/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder

# The documentation as pages that open without a server; mkdocs.yml.
site: $(CHECKED)
	NO_MKDOCS_2_WARNING=1 $(BIN)/python -m mkdocs build
	@echo "Open $(CURDIR)/build/site/index.html in a browser."

# Installs and tests gptx under every Python from 3.11 on that PATH has.
versions:
	set -e; tested=; for python in python3.11 python3.12 python3.13 python3.14; do \
		$$python -c '' 2>/dev/null || { echo "$$python: not on PATH, not tested"; continue; }; \
		echo "$$python:"; \
		$$python -m venv --clear build/$$python; \
		build/$$python/bin/pip install --quiet --constraint constraints.txt --editable '.[dev]'; \
		build/$$python/bin/pytest --numprocesses $(WORKERS) --dist loadfile --no-loadscope-reorder; \
		tested="$$tested $$python"; \
	done; \
	test -n "$$tested" || { echo "PATH has no Python from 3.11 on"; exit 1; }

# Everything to check before a release, about two hours; then dist/ has the wheel. Publishes nothing.
release: check versions fuzz soak planted all-variants lessons
	$(BIN)/pip wheel --quiet --no-deps --wheel-dir dist .

# build/lessons/: the lessons as notebooks, with their outputs; some minutes.
lessons: $(LESSONS)

build/lessons/%.ipynb: docs/lessons/%.py $(CHECKED)
	mkdir -p $(@D)
	$(BIN)/jupytext --quiet --to ipynb --output $@ $<
	$(BIN)/jupyter-execute --inplace $@

# docs/demo.html: a model of the Python language reference, without counting, in a page.
page: $(CHECKED)
	$(BIN)/python docs/demo.py --train

# docs/page-*.png and docs/live-*.webp, of a new run of repeats.
pictures: $(CHECKED)
	$(BIN)/python docs/pictures.py

# docs/cli.md: every command and option, from the commands' own help.
cli-docs: $(CHECKED)
	$(BIN)/python docs/commands.py

# tests/interface.txt: every public name, signature and option.
interface: $(CHECKED)
	$(BIN)/python tests/interface.py

# Trainings killed at random moments; minutes, so not among the tests.
soak: $(CHECKED)
	$(BIN)/python tests/soak.py

# Hostile command lines, configs, manifests, model files, logs, folders and texts, at random.
fuzz: $(CHECKED)
	$(BIN)/python tests/fuzz.py

# Faults planted one by one in a copy; a test has to find each.
planted: $(CHECKED)
	$(BIN)/python tests/planted.py

# Which tests find each of these faults: tests/planted/found.txt. Hours; goes on where it stopped.
planted-record: $(CHECKED)
	$(PIP) pytest-cov
	$(BIN)/python tests/planted.py --record

# All forms of the model for every combination of its options; before a release.
all-variants: $(CHECKED)
	ALL_VARIANTS=1 $(BIN)/pytest --numprocesses $(WORKERS) tests/test_parity.py

bench: $(CHECKED)
	$(BIN)/python benchmarks/step.py
	$(BIN)/python benchmarks/start.py

clean:
	rm -rf $(VENV) build dist *.egg-info .mypy_cache .ruff_cache .pytest_cache .hypothesis .import_linter_cache
