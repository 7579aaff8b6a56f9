# Every target makes and reuses .venv by itself: a fresh clone needs nothing but Python 3.11+.
PYTHON ?= python3
VENV := .venv
BIN := $(VENV)/bin
READY := $(VENV)/.ready
# Tests start many processes, and each would compile all of the package again.
unexport PYTHONDONTWRITEBYTECODE
COMPILE := uv pip compile --universal --python-version 3.11 --no-header --no-annotate --no-emit-index-url pyproject.toml

.PHONY: demo test test-slow engines lint bench reproduce audit docs screenshots package lowest lock clean

demo: $(READY)
	$(BIN)/batchdp demo

test: $(READY)
	$(BIN)/pytest -n auto --dist loadgroup -m "not slow"

test-slow: $(READY)
	$(BIN)/pytest -n auto --dist loadgroup -m slow

# What some tests need: PostgreSQL, Java, a browser and pdftotext by Debian's packages, Spark and Jupyter into .venv.
engines: $(READY)
	@missing=; \
	command -v initdb >/dev/null || ls /usr/lib/postgresql/*/bin/initdb >/dev/null 2>&1 || missing="$$missing postgresql"; \
	command -v java >/dev/null || missing="$$missing default-jre-headless"; \
	command -v chromium >/dev/null && command -v chromedriver >/dev/null || missing="$$missing chromium chromium-driver"; \
	command -v pdftotext >/dev/null || missing="$$missing poppler-utils"; \
	if [ -z "$$missing" ]; then echo "PostgreSQL, Java, Chromium and pdftotext are there"; exit 0; fi; \
	if ! command -v apt-get >/dev/null; then echo "please install what is missing:$$missing" >&2; exit 1; fi; \
	if [ "$$(id -u)" = 0 ]; then root=; elif sudo -n true 2>/dev/null; then root=sudo; \
	else echo "please run as root: apt-get install$$missing" >&2; exit 1; fi; \
	echo "apt-get install$$missing"; \
	$$root apt-get update -qq && $$root env DEBIAN_FRONTEND=noninteractive apt-get install -qq -y --no-install-recommends $$missing
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements-spark.lock -r requirements-notebook.lock

lint: $(READY)
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/mypy
	$(BIN)/lint-imports --no-cache

bench: $(READY)
	mkdir -p bench
	$(BIN)/python benchmarks/comparison.py --csv bench/comparison.csv
	$(BIN)/python benchmarks/scale.py --curves --json bench/scale.json -o bench

# What docs/reproduction lacks is measured, which takes days where it holds nothing; then its page is made.
reproduce: $(READY)
	$(BIN)/python -m reproduction all -o docs/reproduction --page docs/reproduction.md

# The long privacy checks, which take hours: a million runs a side, 10 000 exact examples, 2 000 neighbouring tables in every
# engine (`make engines`), 10 000 crafted files, 10 000 kills, 32 processes, 100 000 points and draws of every small
# body, and a million draws a side of shaped noise.
audit: $(READY)
	$(BIN)/python benchmarks/audit.py
	BATCHDP_EXAMPLES=10000 $(BIN)/pytest -n auto tests/test_lattice.py tests/test_audit.py tests/test_amounts.py -m "not slow"
	$(BIN)/python benchmarks/neighbours.py
	$(BIN)/python benchmarks/crafted.py
	$(BIN)/python benchmarks/accounting.py
	$(BIN)/python benchmarks/ledger.py
	$(BIN)/python benchmarks/shaped.py --exactness 100000
	$(BIN)/python benchmarks/shaped_batches.py attack

docs: $(READY)
	$(BIN)/mkdocs build --strict

# The pictures in docs/images; needs Debian's chromium and chromium-driver.
screenshots: $(READY)
	$(BIN)/python benchmarks/screenshots.py

# An sdist and a wheel, and the demo from the wheel in an empty environment of every Python that there is.
PYTHONS ?= python3.11 python3.12 python3.13 python3.14
package: $(READY)
	rm -rf dist
	$(BIN)/python -m hatchling build -d dist
	@empty=$$(mktemp -d) && $(PYTHON) -m venv $$empty && $$empty/bin/python -m pip install --quiet --disable-pip-version-check twine \
	  && $$empty/bin/twine check --strict dist/*; done=$$?; rm -rf $$empty; exit $$done
	@for python in $(PYTHONS); do \
	  $$python --version >/dev/null 2>&1 || { echo "no $$python here"; continue; }; \
	  empty=$$(mktemp -d) && $$python -m venv $$empty && $$empty/bin/python -m pip install --quiet --disable-pip-version-check dist/*.whl \
	    && (cd $$empty && bin/batchdp demo >/dev/null) && echo "$$python: batchdp demo runs from the wheel" || exit 1; \
	  rm -rf $$empty; \
	done

# The tests of everyday use with the lowest versions that pyproject.toml allows.
lowest:
	$(PYTHON) -m venv .venv-lowest
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check -r requirements-lowest.lock
	grep -E "^(pytest|pytest-xdist|hypothesis|polars|selenium|mpmath|hatchling|editables)==" requirements.lock > .venv-lowest/tools.txt
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check -r .venv-lowest/tools.txt
	.venv-lowest/bin/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	.venv-lowest/bin/pytest -n auto --dist loadgroup -m "not slow" -W default tests/test_cli.py tests/test_demo.py tests/test_ledger.py \
	  tests/test_plans.py tests/test_release.py tests/test_sql.py tests/test_report.py tests/test_golden.py tests/test_tables.py

$(READY): pyproject.toml requirements.lock
	$(PYTHON) -c 'import sys; sys.version_info >= (3, 11) or sys.exit("batchdp needs Python 3.11 or newer; try make PYTHON=python3.12")'
	$(PYTHON) -m venv $(VENV)
	$(BIN)/python -m pip install --quiet --disable-pip-version-check -r requirements.lock
	$(BIN)/python -m pip install --quiet --disable-pip-version-check --no-deps --no-build-isolation -e .
	touch $(READY)

# Refresh the exact versions; needs uv, which nothing else does.
lock:
	$(COMPILE) --upgrade --extra postgres --group dev -o requirements.lock
	$(COMPILE) --extra spark -c requirements.lock -o requirements-spark.lock
	$(COMPILE) --resolution lowest-direct --extra postgres -o requirements-lowest.lock
	$(COMPILE) --extra notebook --group jupyter -c requirements.lock -o requirements-notebook.lock

clean:
	rm -rf $(VENV) .venv-lowest .mypy_cache .pytest_cache .ruff_cache .hypothesis .import_linter_cache site dist
