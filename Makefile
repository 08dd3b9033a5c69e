# make run        sets up, then explores a sample of the shipped scenarios: under a minute (tidegate explore --all: the rest)
# make test       sets up, servers included, then runs every check and test: about ten minutes
# make check      style, types and layers
# make browser    installs a Chromium for the tests of the web pages
# make thorough   all tests at full length: several hours; PART=search (see tests/length.py) runs one part
# make durations  runs make test and writes tests/durations.json
# make coverage   branches of the core that the properties alone take: a quarter of an hour
# make golden     rewrites the files that tests compare with (transcripts, public names, counts of states): review the diff
# make bench      every benchmark beside its comparison: see docs/benchmarks.md
# make clean      removes everything that the other targets made
#
# All targets can be run twice, and work offline once they have run.

PYTHON ?= python3
BIN := .venv/bin
# Two more than there are processors, for many tests wait for servers.
WORKERS := $(shell $(PYTHON) -c 'import os; print((os.cpu_count() or 1) + 2)')
# Tests start many processes: each would compile all modules again.
unexport PYTHONDONTWRITEBYTECODE
# Tests that compare with what is on record.
GOLDEN := tests/properties/test_public.py tests/properties/test_specimens.py tests/properties/test_scenarios.py \
	tests/properties/sim/test_trace.py tests/properties/sim/test_type_names.py
INSTALL := $(BIN)/python -m pip install --quiet --disable-pip-version-check --constraint constraints.txt

.PHONY: run test check thorough browser durations mutants coverage golden bench clean

run: .venv/run.stamp
	@echo "== exploring a sample of the shipped scenarios"
	$(BIN)/tidegate explore

test: .venv/test.stamp check
	@echo "== testing: properties, then real servers"
	$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup

check: .venv/test.stamp
	@echo "== checking style, types and layers"
	$(BIN)/ruff check .
	$(BIN)/ruff format --check .
	$(BIN)/biome check
	$(BIN)/mypy --num-workers auto

thorough: .venv/test.stamp
	@echo "== running all tests at full length (tests/length.py)$(PART:%=: the part %)"
	TIDEGATE_AT_LENGTH=1 TIDEGATE_PART=$(PART) $(BIN)/python -m pytest --fail-on-flaky --timeout 3600 -o faulthandler_timeout=3900 -n $(WORKERS) --dist loadgroup
	@test -n "$(filter-out kafka,$(PART))" || TIDEGATE_AT_LENGTH=1 TIDEGATE_KAFKA=4.1.1 $(BIN)/python -m pytest --timeout 3600 tests/integration/test_kafka_agreement.py

browser: .venv/test.stamp
	@$(BIN)/python -m tests.integration.browser

durations: .venv/test.stamp
	-$(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup --junit-xml .tidegate/durations.xml
	$(BIN)/python -m tests.test_durations .tidegate/durations.xml

mutants: .venv/test.stamp
	@echo "== recording which tests execute which lines, then judging a sample of mutants by these: some hours"
	test -e .tidegate/mutants/lines.json || $(BIN)/python -m tests.integration.mutants --record
	$(BIN)/python -m tests.integration.mutants

coverage: .venv/test.stamp
	@echo "== measuring which branches of the core the properties take"
	$(BIN)/coverage erase
	$(BIN)/coverage run -m pytest -n auto --dist loadgroup tests/properties
	$(BIN)/coverage combine --quiet
	$(BIN)/coverage report

golden: .venv/test.stamp
	TIDEGATE_GOLDEN=write $(BIN)/python -m pytest -n $(WORKERS) --dist loadgroup $(GOLDEN)

bench: .venv/test.stamp
	$(BIN)/python -m benchmarks.decisions --json .tidegate/bench/decisions.json
	$(BIN)/python -m benchmarks.search
	$(BIN)/python -m benchmarks.enumeration
	$(BIN)/python -m benchmarks.checks
	$(BIN)/python -m benchmarks.sampling
	$(BIN)/python -m benchmarks.consumer
	$(BIN)/python -m benchmarks.watermark
	$(BIN)/python -m benchmarks.metadata
	$(BIN)/python -m benchmarks.kafka_runs
	$(BIN)/python -m benchmarks.mongo_runs
	$(BIN)/python -m benchmarks.mongo --json .tidegate/bench/mongo.json
	$(BIN)/python -m benchmarks.planning --json .tidegate/bench/planning.json
	$(BIN)/python -m benchmarks.reactive --json .tidegate/bench/reactive.json
	$(BIN)/python -m benchmarks.orchestrator --json .tidegate/bench/orchestrator.json
	$(BIN)/python -m benchmarks.orchestrator.upkeep --json .tidegate/bench/orchestrator_upkeep.json
	$(BIN)/python -m benchmarks.upkeep --json .tidegate/bench/upkeep.json
	$(BIN)/python -m benchmarks.page
	$(BIN)/python -m benchmarks.worker --json .tidegate/bench/worker.json
	$(BIN)/python -m benchmarks.pipeline --json .tidegate/bench/pipeline.json
	$(BIN)/python -m benchmarks.half_open

.venv/bin/python:
	@echo "== making a virtual environment in .venv"
	@$(PYTHON) -c 'import sys; sys.exit(sys.version_info < (3, 11) and "tidegate needs Python 3.11 or later; set PYTHON=")'
	$(PYTHON) -m venv .venv

.venv/run.stamp: .venv/bin/python pyproject.toml constraints.txt
	@echo "== installing tidegate and its command line"
	@$(INSTALL) --upgrade pip
	@$(INSTALL) --editable '.[cli]'
	@touch $@

.venv/test.stamp: .venv/bin/python pyproject.toml constraints.txt
	@echo "== installing tidegate, its tests, and a MongoDB and a Kafka to test with"
	@$(INSTALL) --upgrade pip
	@$(INSTALL) --editable '.[mongo,zstd,kafka,cli,worker,orchestrator,yaml,hypothesis]' --group dev
	@$(BIN)/python -m tests.integration.servers
	@echo "== compiling the tests once, not in each process that runs them"
	@$(BIN)/python -m pytest --collect-only -q > .venv/collected.txt
	@touch $@

clean:
	rm -rf .venv .tidegate .mypy_cache .pytest_cache .ruff_cache .hypothesis
