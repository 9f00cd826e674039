# Everything here works on a machine with only Python 3.11+, git and make.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
# pip is quiet; the sentinel is rebuilt when the requirements change.
READY := $(VENV)/.ready

.PHONY: run test test-all fuzz soundness honesty limits lint types check wheel oldest oldest-tests bench bench-smoke bench-certify bench-first bench-foundation bench-scale bench-defaults docs docs-quick reproduce clean

run: $(READY)
	$(BIN)/python examples/quickstart.py --out run

test: $(READY)
	$(BIN)/python -m pytest -n 2 -m "not slow"

test-all: $(READY)
	$(BIN)/python -m pytest -n 2

# other random examples on every run: for finding bugs, not for landing changes
fuzz: $(READY)
	HYPOTHESIS_PROFILE=fuzz $(BIN)/python -m pytest -n 2 -m "not slow"

# whether anything that is called proven is false; minutes
soundness: $(READY)
	$(BIN)/python benchmarks/soundness.py

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .

types: $(READY)
	$(BIN)/mypy

check: lint types test

# wheel and sdist, checked, and the wheel used in a clean environment
wheel:
	rm -rf dist build/clean
	$(PYTHON) -m venv build/tools
	build/tools/bin/python -m pip install --quiet --disable-pip-version-check build twine
	build/tools/bin/python -m build --outdir dist
	build/tools/bin/python -m twine check --strict dist/*
	$(PYTHON) -m venv build/clean
	build/clean/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl
	cd build/clean && bin/python -P ../../.ci/quick_start.py

# what the oldest allowed versions run, and releases that are not out yet: no torch, which is for a few
comma := ,
LIGHT := tables,plot,onnx,playground,completion
SLICE := $(patsubst %,tests/test_%.py,losses arrangements certificates models tables table_model plots onnx gated splines cli playground progress)

# the lower bounds of pyproject.toml are true; Python 3.11, the last one that all of them have wheels for
oldest:
	$(PYTHON) -m venv --clear build/oldest
	$(PYTHON) .ci/lower_bounds.py $(subst $(comma), ,$(LIGHT)) > build/oldest.txt
	build/oldest/bin/python -m pip install --quiet --disable-pip-version-check -c build/oldest.txt '.[$(LIGHT)]' pytest hypothesis httpx cvxpy
	$(MAKE) oldest-tests PYTHON=build/oldest/bin/python

# old libraries on new ones warn of deprecations, which is not our matter
oldest-tests:
	OMP_NUM_THREADS=1 $(PYTHON) -m pytest -p no:cacheprovider -W ignore::DeprecationWarning $(SLICE)

# ours and the peers; makes the peers' own environment in benchmarks/.venv
bench: $(READY)
	$(BIN)/python benchmarks/engine.py

# whether the benchmarks run, in less than a minute; prints only
bench-smoke: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/engine.py --quick --methods ours

bench-certify: $(READY)
	$(BIN)/python benchmarks/certify.py

# what the first call costs where nothing is compiled yet, and importing; about ten minutes
bench-first: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/first_call.py

bench-foundation: $(READY)
	$(BIN)/python benchmarks/foundation.py

# how often other seeds refute a likely bound; goes on where it was stopped
honesty: $(READY)
	$(BIN)/python benchmarks/honesty.py

# time limits asked and taken, Ctrl-C, memory: some minutes, on a machine that does nothing else
limits: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/limits.py

# image-size data; about 25 minutes, goes on where it was stopped; DATA is the folder of mnist.npz and cifar10.npz
bench-scale: $(READY)
	$(BIN)/python benchmarks/scale.py --data $(or $(DATA),data)

# a fit with nothing but defaults beside four peers; about an hour, goes on where it was stopped
bench-defaults: $(READY)
	OMP_NUM_THREADS=1 $(BIN)/python benchmarks/defaults.py --data $(or $(DATA),data)

# the experiments of the papers at small sizes; DATA=folder with the real data sets
reproduce: $(READY)
	$(BIN)/bidual reproduce --all --quick --out run/reproductions $(if $(DATA),--data $(DATA))

# the documentation in site/, every example run; warnings are errors
docs: $(READY)
	OMP_NUM_THREADS=1 MPLBACKEND=Agg $(BIN)/sphinx-build -q -W --keep-going -d build/doctrees docs site

# the same, running only the short examples (plot_*): what must pass before a change lands
docs-quick: $(READY)
	OMP_NUM_THREADS=1 MPLBACKEND=Agg BIDUAL_DOCS=quick $(BIN)/sphinx-build -q -W --keep-going -d build/doctrees docs site

# torch first and pinned: an unpinned range pulls gigabytes of CUDA packages.
$(READY): pyproject.toml
	$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' || (echo "bidual needs Python 3.11 or newer; set PYTHON=..." && exit 1)
	test -x $(BIN)/python || $(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check torch==2.13.0
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -e '.[dev]'
	touch $@

clean:
	rm -rf $(VENV) benchmarks/.venv run build dist site docs/_examples docs/gallery docs/api .pytest_cache .mypy_cache .ruff_cache .hypothesis
