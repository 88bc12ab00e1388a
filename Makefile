# make demo    build everything and run the demonstration
# make test    build everything and run the tests on both implementations, then CPython's own asyncio tests
#
# make test-rest | test-all | build | lint | docs | debug-test | sanitize-test | race-test | leak-test | fault-test | kqueue-test | fuzz
# make differential | soak | coverage | promises | promises-test | upstream | ecosystem | wheels | bench | clean
#
# Everything is installed into .venv, which is made with the first python3 that is new enough; PYTHON=... names another.

MINIMUM := (3, 11)
suits = $(shell $(1) -c 'import sys; sys.version_info >= $(MINIMUM) and print(sys.executable)' 2>/dev/null)
PYTHON := $(or $(call suits,python3),$(call suits,python3.15),$(call suits,python3.14),$(call suits,python3.13),$(call \
	suits,python3.12),$(call suits,python3.11))

VENV := .venv
BIN := $(VENV)/bin
PIP := $(BIN)/python -m pip --disable-pip-version-check
EXT_SOURCES := setup.py $(wildcard ext/hotloop/*.pxd ext/hotloop/_c/* ext/hotloop/_c/*/*)

# The strings of a list in a TOML file.
TOML_LIST := $(BIN)/python .ci/toml_list.py

# The tests wait more than they compute: more processes than cores.
TEST_PROCESSES ?= 3
PROJECT_TESTS := -m "not conformance"
RUN_TESTS = -m pytest $(PROJECT_TESTS) --numprocesses=$(TEST_PROCESSES)
# A variant of the extension: all but the tests of programs that are the same beside each, which `make test-all` runs.
SAME_IN_VARIANTS := $(shell cat .ci/same-in-variants.txt)
# What does not ask the kernel about descriptors is the same with the other poller, too.
kqueue-test: SAME_IN_VARIANTS += highlevel tasks testing tools package
TEST_VARIANT = $(RUN_TESTS) $(SAME_IN_VARIANTS:%='--ignore-glob=tests/%')

# What `make upstream` runs, of the names in tests/upstream/suites.toml.
UPSTREAM_SUITES ?= all

# Passed on to pytest, and by `make bench` to benchmarks/compare.py.
PYTEST_ARGS ?=
BENCH_ARGS ?=

# A recipe that fails halfway must not leave its stamp behind.
.DELETE_ON_ERROR:
.PHONY: build demo test test-rest test-all lint lint-python lint-cython lint-floors lint-types lint-workflows \
	docs debug-test sanitize-test race-test leak-test fault-test kqueue-test fuzz differential soak coverage promises \
	promises-test upstream ecosystem wheels bench clean

build: $(VENV)/.built

# The packages: what building, testing and the examples need, and hotloop itself as an editable install.
# The extension is the next rule's, which compiles again only what has changed.
$(VENV)/.packages: pyproject.toml
	@test -n "$(PYTHON)" || { echo "hotloop needs CPython 3.11 or newer, and no python3 here is one" >&2; exit 1; }
	$(PYTHON) -m venv $(VENV)
	$(TOML_LIST) pyproject.toml build-system requires > $(VENV)/build-requires.txt
	$(PIP) install --quiet --requirement $(VENV)/build-requires.txt
	HOTLOOP_BUILD_EXT=no HOTLOOP_PROFILE=no $(PIP) install --quiet --no-build-isolation --editable '.[test,examples]'
	@touch $@

$(VENV)/.built: $(VENV)/.packages $(EXT_SOURCES)
	HOTLOOP_BUILD_EXT=yes HOTLOOP_DEBUG=0 HOTLOOP_COVERAGE=0 HOTLOOP_SANITIZE=no $(BIN)/python setup.py --quiet build_ext --inplace
	@touch $@

demo: $(VENV)/.built
	$(BIN)/python examples/demo.py

# What a change is tried with; the last line says what ran. What it leaves out, because it takes too long: test-rest.
test: $(VENV)/.built
	@$(BIN)/python .ci/test.py --numprocesses=$(TEST_PROCESSES) $(PYTEST_ARGS)

test-rest: $(VENV)/.built
	@$(BIN)/python .ci/test.py --rest --numprocesses=$(TEST_PROCESSES) $(PYTEST_ARGS)

test-all: $(VENV)/.built
	@$(BIN)/python .ci/test.py --all --numprocesses=$(TEST_PROCESSES) $(PYTEST_ARGS)

# Beside the packages above, so that mypy and stubtest see hotloop and its compiled modules.
$(VENV)/.lint: $(VENV)/.packages .ci/lint-requirements.txt
	$(PIP) install --quiet --requirement .ci/lint-requirements.txt
	@touch $@

lint: lint-python lint-cython lint-floors lint-types lint-workflows

lint-python: $(VENV)/.lint
	$(BIN)/ruff check
	$(BIN)/ruff format --check

# cython-lint looks for pycodestyle on the PATH.
lint-cython: $(VENV)/.lint
	PATH="$(CURDIR)/$(BIN):$$PATH" cython-lint ext/hotloop

# Which folder of the sources may use which.
lint-floors:
	$(PYTHON) .ci/check_floors.py

# For the oldest and the newest Python: code that is for other versions only is not checked.
lint-types: $(VENV)/.lint $(VENV)/.built
	$(BIN)/mypy --python-version 3.11
	$(BIN)/mypy --python-version 3.15
	$(BIN)/python -m mypy.stubtest --concise $(subst /,.,$(patsubst ext/%.pyx,%,$(wildcard ext/hotloop/_c/*/*.pyx)))

lint-workflows: $(VENV)/.lint
	$(BIN)/zizmor --offline --no-progress .github
	$(BIN)/check-jsonschema --builtin-schema vendor.github-workflows .github/workflows/*.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.dependabot .github/dependabot.yml
	$(BIN)/check-jsonschema --builtin-schema vendor.github-issue-forms $(filter-out %/config.yml,$(wildcard .github/ISSUE_TEMPLATE/*.yml))

# In an environment of its own: what the site is built with is not to be among what the tests run with.
# The package is read, not imported, so nothing has to be built for it.
build/docs-venv/.installed: $(VENV)/.packages
	$(BIN)/python -m venv $(@D)
	$(TOML_LIST) pyproject.toml project optional-dependencies docs > $(@D)/requirements.txt
	$(@D)/bin/python -m pip --disable-pip-version-check install --quiet --requirement $(@D)/requirements.txt
	@touch $@

# Its theme's announcement of another tool is no warning about these pages.
docs: build/docs-venv/.installed
	NO_MKDOCS_2_WARNING=1 build/docs-venv/bin/mkdocs build --clean --quiet --strict

# The variants are installed into environments of their own: the editable install keeps its release build. Without a profile, which is
# for wheels that are used.
build/%/.installed: $(VENV)/.packages $(EXT_SOURCES) $(shell find src -name '*.py*' -not -path '*/__pycache__/*')
	$(BIN)/python -m venv $(@D)
	$(@D)/bin/python -m pip install --quiet --requirement $(VENV)/build-requires.txt
	HOTLOOP_BUILD_EXT=yes HOTLOOP_PROFILE=no $(@D)/bin/python -m pip install --quiet --no-build-isolation --force-reinstall \
		'.[test,examples]' $(EXTRA)
	@touch $@

build/debug-venv/.installed: export HOTLOOP_DEBUG := 1
build/sanitize-venv/.installed: export HOTLOOP_SANITIZE := address,undefined
build/kqueue-venv/.installed: $(wildcard tests/kqueue_shim/*.h tests/kqueue_shim/sys/*.h)
build/kqueue-venv/.installed kqueue-test: export HOTLOOP_POLLER := kqueue-shim
build/coverage-venv/.installed: export HOTLOOP_COVERAGE := 1
build/coverage-venv/.installed: EXTRA := coverage

kqueue-test: STDLIB_IMPLS := c
debug-test: STDLIB_IMPLS := c c+compiled
# The kqueue backend is tested on Linux: see tests/kqueue_shim. The tests expect the backend that HOTLOOP_POLLER names.
# Code 4, here and below: this Python has no compiled asyncio.
debug-test kqueue-test: %-test: build/%-venv/.installed
	build/$*-venv/bin/python $(TEST_VARIANT) $(PYTEST_ARGS)
	for impl in $(STDLIB_IMPLS); do \
		build/$*-venv/bin/python tests/stdlib/run.py --impl $$impl || { code=$$?; [ $$code -eq 4 ] || exit $$code; }; \
	done

# CC must be GCC. A report of a sanitizer is a file in REPORTS, and ends the process that caused it: by an abort in the case
# of UBSan, which AddressSanitizer reports. Some tests start programs whose end and stderr mean nothing to them, so the files
# decide. The interpreter's own objects come from malloc(), which AddressSanitizer watches. What it keeps on purpose until
# its end looks like leaks: those are looked for by repeating tests (leak-test). Two tests of the tests' own tools have programs that
# crash on purpose, which would be reports; PostgreSQL's initdb, which would get the sanitizers' libraries too, hangs with them.
REPORTS := $(CURDIR)/build/sanitize-reports
SANITIZED = LD_PRELOAD="$$($(CC) -print-file-name=libasan.so) $$($(CC) -print-file-name=libubsan.so)" PYTHONMALLOC=malloc \
	ASAN_OPTIONS=log_path=$(REPORTS)/asan:handle_abort=2:detect_leaks=0:allocator_may_return_null=1:detect_stack_use_after_return=1 \
	UBSAN_OPTIONS=log_path=$(REPORTS)/ubsan:abort_on_error=1:print_stacktrace=1

sanitize-test: build/sanitize-venv/.installed
	rm -rf $(REPORTS) && mkdir -p $(REPORTS)
	@code=0; export HOTLOOP_TEST_IMPLS=c; \
	$(SANITIZED) build/sanitize-venv/bin/python $(RUN_TESTS) $(PYTEST_ARGS) \
		--deselect tests/stdlib/test_harness.py::test_each_test_has_its_own_verdict \
		--deselect tests/stdlib/test_harness.py::test_a_broken_fixture_is_a_failure \
		--ignore tests/bench/test_bench_databases.py || code=$$?; \
	for impl in c c+compiled; do \
		$(SANITIZED) build/sanitize-venv/bin/python tests/stdlib/run.py --impl $$impl || \
			{ result=$$?; [ $$result -eq 4 ] || code=$$result; }; \
	done; \
	for report in $(REPORTS)/*; do [ ! -e "$$report" ] || { cat "$$report"; code=1; }; done; \
	exit $$code

# What threads do to loops, under ThreadSanitizer. The interpreter has to be built for it as well, or locks and reference counts
# would look like races: RACE_PYTHON is one that was configured with --disable-gil --with-thread-sanitizer. pip takes minutes
# there and Cython half an hour, so .venv's Python installs what runs on any, and translates afterwards: what is older than
# Cython's own files is translated again.
RACE_PYTHON ?=
RACE_TESTS := futures handles lifecycle loops_in_threads ready_queue threadsafe
RACE_REPORTS := $(CURDIR)/build/race-reports
# Where addresses are too random for its shadow memory.
RACE_SETARCH := $(if $(shell command -v setarch),setarch -R)
build/race-venv/.installed: export HOTLOOP_SANITIZE := thread
build/race-venv/.installed: $(VENV)/.packages $(EXT_SOURCES) $(shell find src -name '*.py*' -not -path '*/__pycache__/*')
	@test -n "$(RACE_PYTHON)" && $(RACE_PYTHON) -c 'import sys, sysconfig; options = sysconfig.get_config_var("CONFIG_ARGS") or ""; \
		sys.exit("--disable-gil" not in options or "--with-thread-sanitizer" not in options)' \
		|| { echo "RACE_PYTHON must be a CPython configured with --disable-gil --with-thread-sanitizer" >&2; exit 1; }
	$(RACE_PYTHON) -m venv --without-pip $(@D)
	site=$$($(@D)/bin/python -c 'import sysconfig; print(sysconfig.get_path("purelib"))') && \
		$(PIP) install --quiet --no-compile --upgrade --target "$$site" \
			--only-binary :all: --implementation py --abi none --platform any \
			--requirement $(VENV)/build-requires.txt pytest pytest-xdist hypothesis
	HOTLOOP_BUILD_EXT=yes $(BIN)/python setup.py --quiet build_ext --build-lib build/race-translated
	HOTLOOP_BUILD_EXT=yes $(@D)/bin/python setup.py --quiet build_ext --build-lib build/race-lib
	cd src && find hotloop -name '*.py' -exec cp --parents {} ../build/race-lib/ \;
	@touch $@

race-test: build/race-venv/.installed
	rm -rf $(RACE_REPORTS) && mkdir -p $(RACE_REPORTS)
	@code=0; export HOTLOOP_TEST_IMPLS=c HOTLOOP_TEST_SECONDS=900 HOTLOOP_THREADSAFE_CALLS=500 PYTHON_GIL=0 \
		TSAN_OPTIONS=log_path=$(RACE_REPORTS)/tsan:exitcode=0:suppressions=$(CURDIR)/tests/race_suppressions.txt; \
	PYTHONPATH=$(CURDIR)/build/race-lib $(RACE_SETARCH) build/race-venv/bin/python -m pytest -o faulthandler_timeout=0 $(PYTEST_ARGS) $(RACE_TESTS:%=tests/*/test_%.py) || code=$$?; \
	for report in $(RACE_REPORTS)/*; do [ ! -e "$$report" ] || { cat "$$report"; code=1; }; done; \
	exit $$code

# Tests again and again, and what is left each time (tests/support/leaks.py): those of all that is made and freed.
LEAK_TESTS := accepting datagram_addresses datagrams debug dump_tasks format_tasks futures garbage handles lifecycle listening \
	pipe_protocols pipe_reading pipe_writing processes python_data readers ready_queue selector sendfile \
	server_scenarios servers sock_connecting sock_methods sock_waiting stall_watch stalls stream_closing stream_contexts stream_errors \
	stream_reading stream_writing streams subprocesses task_cancel task_eager tasks threadsafe \
	timer_contexts timers tls_closing tls_connecting tls_errors tls_failing_callbacks tls_reading tls_timeouts \
	tls_upgrading tls_writing

leak-test: $(VENV)/.built
	HOTLOOP_TEST_IMPLS=c PYTHONPATH=tests $(BIN)/python -m pytest -p support.leaks --numprocesses=$(TEST_PROCESSES) $(PYTEST_ARGS) \
		tests/highlevel $(LEAK_TESTS:%=tests/*/test_%.py)

# One allocation or one system call after the other fails, in every part of a loop (tests/faults/run.py);
# FAULT_ARGS="--impl c --scenario Tcp" narrows it. The shim is compiled into build/faults.
FAULT_MINUTES ?= 10
fault-test: $(VENV)/.built
	$(BIN)/python tests/faults/run.py --minutes $(FAULT_MINUTES) $(FAULT_ARGS)

# The parsers of what others send, on new inputs each time.
FUZZ_SECONDS ?= 60
fuzz: $(VENV)/.packages
	$(BIN)/python tests/fuzz/fuzz.py --seconds $(FUZZ_SECONDS)

# Random programs that have to do what they do on asyncio, new ones each time.
DIFFERENTIAL_MINUTES ?= 5
differential: $(VENV)/.built
	$(BIN)/python tests/differential/run.py --minutes $(DIFFERENTIAL_MINUTES)

# Whether anything grows, in rounds of everything.
SOAK_MINUTES ?= 10
soak: $(VENV)/.built
	$(BIN)/python benchmarks/soak.py --minutes $(SOAK_MINUTES)

coverage: build/coverage-venv/.installed
	.ci/coverage build/coverage-venv $(PROJECT_TESTS) $(PYTEST_ARGS)

# docs/promises.md, from tests/promises.toml and the tests that carry the promises' numbers.
promises: $(VENV)/.packages
	$(BIN)/python tests/promises.py

# With as many operations as the promises speak of.
promises-test: export HOTLOOP_OWNERSHIP_ROUNDS := 12500
promises-test: export HOTLOOP_READER_CYCLES := 100000
promises-test: export HOTLOOP_CHILDREN := 100
promises-test: export HOTLOOP_THREADSAFE_CALLS := 1000000
promises-test: export HOTLOOP_TLS_CYCLES := 15000
# So many take longer than a single test may otherwise.
promises-test: export HOTLOOP_TEST_SECONDS := 3600
promises-test: $(VENV)/.built
	$(BIN)/python $(RUN_TESTS) -o faulthandler_timeout=3600 -m promise tests/poller/test_descriptor_ownership.py \
		tests/poller/test_reader_promises.py tests/network/test_subprocess_promises.py tests/scheduler/test_threadsafe.py tests/tls/test_tls_memory.py $(PYTEST_ARGS)

# Other projects' suites; one that could not be run is a failure here, and the others are run nevertheless.
upstream: $(VENV)/.built
	@code=0; for impl in asyncio c c+compiled python; do \
		$(BIN)/python tests/upstream/run.py $(UPSTREAM_SUITES) --impl $$impl || \
			{ result=$$?; [ $$result -eq 4 ] || code=$$result; }; \
	done; exit $$code

# Other projects' programs, as docs/ecosystem.md says. The tools are installed into build/ecosystem.
ecosystem: $(VENV)/.built
	@code=0; for impl in c python; do \
		$(BIN)/python tests/ecosystem/run.py --impl $$impl || code=$$?; \
	done; exit $$code

# The wheels of a release, for every Python at hand, installed and tested; WHEELS="3.13 pure" makes some of them, and --all
# among WHEEL_ARGS runs all tests.
WHEELS ?=
wheels:
	@test -n "$(PYTHON)" || { echo "this needs CPython 3.11 or newer, and no python3 here is one" >&2; exit 1; }
	$(PYTHON) .ci/wheels.py $(WHEELS) $(WHEEL_ARGS)

# One by one, and never from source: a loop or library without a wheel for this Python and platform is named and left out.
$(VENV)/.bench: $(VENV)/.packages
	@$(TOML_LIST) pyproject.toml dependency-groups bench | while read -r requirement; do \
		$(PIP) install --quiet --only-binary :all: "$$requirement" || echo "NOT INSTALLED, so not measured: $$requirement"; \
	done
	@touch $@

bench: $(VENV)/.built $(VENV)/.bench
	$(BIN)/python benchmarks/compare.py $(BENCH_ARGS)

clean:
	rm -rf $(VENV) build dist src/hotloop.egg-info .coverage .mypy_cache .pytest_cache .ruff_cache .hypothesis
	rm -f src/hotloop/_c/*/*.so
	find examples src tests benchmarks -name __pycache__ -type d -prune -exec rm -rf {} +
