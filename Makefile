# Everything runs in .venv, made from pyproject.toml under the pinned versions of constraints.txt.
PYTHON ?= python3
BIN := .venv/bin
PACKAGES := rtfilter scheduler adaptive experiments
OUT ?= out
# SYSTEM=no: install no system packages
SYSTEM ?= yes

.PHONY: demo serve-demo scale-demo check test ready prove lint format bench bench-compare versions docs clean

demo: .venv/demo ## replay bursts of 12-d events and of flights, with table and picture; two minutes with all it installs
	$(BIN)/python -m experiments demo --out $(OUT)

serve-demo: .venv/installed ## a server, a publisher of real flights, three subscribers; 20 seconds
	$(BIN)/python scripts/serve_demo.py

overlay-demo: .venv/installed ## seven sites: flights arrive while a link is cut, roots are killed and one is away; two minutes
	$(BIN)/python scripts/overlay_demo.py $(OUT)

scale-demo: .venv/installed ## two workers on NATS beside one, and one killed: events a second, with table and picture; a minute
	@SYSTEM="$(SYSTEM)" scripts/system.sh nats
	PYTHONPATH=. $(BIN)/python scripts/scale_demo.py $(OUT)

check: ready ## what to run at every change: style, types, layers, unit tests
	$(BIN)/python -m pytest -n 2 --dist loadgroup -m "not slow" --ignore tests/experiments

test: ready ## everything, with Spark, Prometheus, PostgreSQL, NATS, Chromium and killed processes
	@SYSTEM="$(SYSTEM)" scripts/system.sh java prometheus postgresql nats chromium
	$(BIN)/python -m pytest -n 4 --dist loadgroup

ready: .venv/installed ## style, types and layers; meanwhile kernels are compiled, if they are not yet
	@$(BIN)/python -m rtfilter warm & compiling=$$!; \
		$(MAKE) --no-print-directory lint; linted=$$?; wait $$compiling && exit $$linted

prove: ready ## what takes longer: all tests in full, kills, random runs, planted faults; writes tests/proofs/results
	$(BIN)/python -m pytest -n 3 --dist loadgroup --long -o faulthandler_timeout=3600
	PYTHONPATH=tests $(BIN)/python -m proofs

lint: .venv/installed
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-logo --no-cache

format: .venv/installed
	$(BIN)/ruff check --fix .
	$(BIN)/ruff format .

bench: .venv/installed ## speed beside all peers, in the same run; minutes
	@mkdir -p $(OUT)
	@rm -f $(OUT)/peers.json # or it would be continued
	$(BIN)/python -m experiments bench --out $(OUT)/bench.json --figure $(OUT)/bench.png
	$(BIN)/python -m experiments peers --quick --out $(OUT)/peers.json --figure $(OUT)/peers.png

bench-compare: .venv/installed ## what became slower between two kept results, beyond noise
	@test -n "$(OLD)" && test -n "$(NEW)" \
		|| { echo "two results are needed: make bench-compare OLD=before/bench.json NEW=out/bench.json"; exit 2; }
	$(BIN)/python -m experiments compare $(OLD) $(NEW)

versions: .venv/installed ## the lowest and the newest numba, uvicorn and pyspark allowed, or ONLY=one; half an hour
	$(BIN)/python scripts/versions.py $(if $(ONLY),--only $(ONLY))

docs: .venv/docs ## these pages as a site in out/site; broken links and public names without a docstring fail
	$(BIN)/ruff check --isolated --select D100,D101,D102,D103,D104 \
		--per-file-ignores "rtfilter/cli/*.py:D103" rtfilter scheduler adaptive # each command has the same two functions
	NO_MKDOCS_2_WARNING=1 $(BIN)/mkdocs build --strict --quiet
	@echo "built out/site/index.html"

.venv/docs: .venv/installed
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[docs]'
	@touch $@

.venv/installed: .venv/demo ## all that the other targets need, in the same environment
	@echo "installing the rest of some 2.1 GB into .venv; a minute, or longer on a slow line"
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -c constraints.txt -e '.[dev]'
	@touch $@

# What the demo needs, and no more. Python keeps the bytecode of what it imports; pip would compile all of it.
.venv/demo: pyproject.toml constraints.txt
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11))' \
		|| { echo "rtfilter needs Python 3.11 or newer: make PYTHON=/path/to/python3.11"; exit 1; }
	@SYSTEM="$(SYSTEM)" PYTHON="$(PYTHON)" scripts/system.sh venv
	@$(PYTHON) -m venv .venv \
		|| { echo "cannot make .venv: on Debian, apt-get install python3-venv"; exit 1; }
	@echo "installing some 400 MB into .venv; half a minute, or longer on a slow line"
	$(BIN)/python -m pip install --quiet --no-compile --disable-pip-version-check -c constraints.txt -e '.[demo]'
	@touch $@

clean:
	rm -rf .venv build *.egg-info .pytest_cache .mypy_cache .ruff_cache .hypothesis out
	find $(PACKAGES) tests -name __pycache__ -prune -exec rm -rf {} +
