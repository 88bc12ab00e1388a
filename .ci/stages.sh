# shellcheck shell=bash
# The stages of run, one function each. They run under `set -euo pipefail` in the repository's root; exit code 77 and a last
# line that says why mean that the stage could not apply here.

ROOT=$PWD
PYTHON=$ROOT/.venv/bin/python
OUT=$ROOT/build/ci
# A copy of what the tests need, in a folder from which src/ cannot be imported.
ELSEWHERE=$OUT/elsewhere

make_test() {
    make test
    "$PYTHON" .ci/check_junit.py build/test/project.xml c python
}

# What `make test` leaves out.
make_test_rest() {
    make test-rest
    "$PYTHON" .ci/check_junit.py build/test/project.xml asyncio
    "$PYTHON" .ci/check_junit.py build/test/tls.xml c
}

make_demo() { make demo; }

lint() { make --keep-going lint; }

documents() { make docs; }

sdist() {
    "$PYTHON" -m venv "$OUT/build-venv"
    "$OUT/build-venv/bin/python" -m pip install --quiet --requirement .ci/wheel-requirements.txt
    "$OUT/build-venv/bin/python" .ci/sdist.py "$OUT/sdist"
    mkdir -p "$ELSEWHERE"
    local sources
    mapfile -t sources < <("$PYTHON" .ci/toml_list.py pyproject.toml tool cibuildwheel test-sources)
    cp -r "${sources[@]}" "$ELSEWHERE"
}

build_modes() { "$PYTHON" .ci/check_build_modes.py "$OUT"/sdist/*.tar.gz; }

# Build one wheel from the sdist, alone in its folder, and print its path. `profile` is what HOTLOOP_PROFILE shall be.
wheel() { # YES-OR-NO FOLDER PYTHON...
    local mode=$1 folder=$2 pure=no file
    shift 2
    rm -rf "$folder"
    HOTLOOP_BUILD_EXT=$mode HOTLOOP_PROFILE=${profile:-no} "$@" -m pip wheel --quiet --no-deps --wheel-dir "$folder" "$OUT"/sdist/*.tar.gz >&2 || return
    file=$(echo "$folder"/*.whl)
    [[ $file != *-py3-none-any.whl ]] || pure=yes
    if [ "$mode" = "$pure" ]; then
        echo "HOTLOOP_BUILD_EXT=$mode made ${file##*/}" >&2
        return 1
    fi
    echo "$file"
}

# Install a wheel, and run the project's tests on it, or those of `tests`.
test_wheel() { # NAME WHEEL IMPLEMENTATIONS PYTHON...
    local report=$OUT/$1.xml wheel=$2 implementations=$3
    shift 3
    (cd "$ELSEWHERE" && "$@" "$ROOT/.ci/test_installed.py" "$wheel" "$implementations" "$report" "${tests[@]}")
}

# The wheels of this Python: that they are whole. The first two stages have run every test on the same files, and the
# newest other Python's wheel is tested with all of them.
compiled_wheel() {
    local file tests profile=yes
    mapfile -t tests <.ci/wheel-tests.txt
    file=$(wheel yes "$OUT/wheel" "$PYTHON")
    "$PYTHON" -m venv "$OUT/wheel-venv"
    test_wheel wheel "$file" c "$OUT/wheel-venv/bin/python"
    documents_of_a_user "$file"
}

# The documents' code as a reader runs it: with the wheel installed and nothing else, and then with pytest beside it for the
# page about it. The tests themselves run on another environment, which has what they need.
documents_of_a_user() { # WHEEL
    local user=$OUT/user-venv
    "$PYTHON" -m venv --clear "$user"
    "$user/bin/python" -m pip install --quiet "$1"
    run_blocks_on "$user/bin/python" "test_a_block_of_code_runs"
    "$user/bin/python" -m pip install --quiet pytest
    run_blocks_on "$user/bin/python" "test_a_block_of_code_runs and pytest.md"
}

run_blocks_on() { # PYTHON EXPRESSION
    (
        cd "$ELSEWHERE"
        HOTLOOP_TEST_IMPLS=c HOTLOOP_DOCUMENTS_PYTHON=$1 "$OUT/wheel-venv/bin/python" -m pytest --numprocesses=3 \
            -k "$2" tests/package/test_documents.py
    )
}

pure_wheel() {
    local file tests
    mapfile -t tests <.ci/wheel-tests.txt
    file=$(wheel no "$OUT/pure-wheel" "$PYTHON")
    "$PYTHON" -m venv "$OUT/pure-venv"
    test_wheel pure-wheel "$file" python "$OUT/pure-venv/bin/python"
}

# A variant of the extension, with warnings as errors: those about ext/ and Cython's code, not the interpreter's headers.
variant() { # debug | kqueue
    # `make` may have built it without them.
    rm -f "build/$1-venv/.installed"
    CFLAGS="-Werror" HOTLOOP_TEST_IMPLS=c make "$1-test" PYTEST_ARGS="--junitxml=$OUT/$1.xml"
    "$PYTHON" .ci/check_junit.py "$OUT/$1.xml" c
}

# Wheel, CPython's own suites and the tests on another interpreter: all of them, or those that the extension has a part in. The
# command's last word is the interpreter, what comes before it is how to get there; the environment made by it is only usable
# that way.
other_interpreter() { # VERSION COMMAND all|extension
    local words venv file implementations=c,python same tests=() outcome=0 conformance=0
    if [ "$3" = extension ]; then
        implementations=c
        mapfile -t same <.ci/same-in-variants.txt
        tests=("${same[@]/#/--ignore-glob=tests/}")
    fi
    read -ra words <<<"$2"
    local way=("${words[@]:0:${#words[@]}-1}")
    venv=$OUT/python$1-venv
    "${words[@]}" -m venv "$venv"
    local python=("${way[@]}" "$venv/bin/python")
    file=$(wheel yes "$OUT/python$1" "${python[@]}")
    test_wheel "python$1" "$file" "$implementations" "${python[@]}" || outcome=$?
    "${python[@]}" tests/stdlib/run.py --impl c || conformance=$?
    # Again with hotloop.asyncio's objects in asyncio's place. Code 4: on this Python there are none.
    if [ "$conformance" -eq 0 ]; then
        "${python[@]}" tests/stdlib/run.py --impl c+compiled || conformance=$?
        [ "$conformance" -ne 4 ] || conformance=0
    fi
    [ "$outcome" -eq 0 ] || return "$outcome"
    # Some distributions package an interpreter's own tests apart.
    if [ "$conformance" -eq 3 ]; then
        echo "the tests passed, but CPython $1 has no test.test_asyncio to run"
        exit 77
    fi
    return "$conformance"
}
