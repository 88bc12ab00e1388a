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
}

make_demo() { make demo; }

lint() { make "lint-$1"; }

documents() { make docs; }

sdist() {
    "$PYTHON" -m venv "$OUT/build-venv"
    "$OUT/build-venv/bin/python" -m pip install --quiet build
    rm -rf "$OUT/sdist"
    "$OUT/build-venv/bin/python" -m build --quiet --sdist --outdir "$OUT/sdist" .
    "$PYTHON" .ci/check_sdist.py "$OUT"/sdist/*.tar.gz
    "$OUT/build-venv/bin/python" .ci/check_sdist_rebuilds.py "$OUT"/sdist/*.tar.gz
    mkdir -p "$ELSEWHERE"
    local sources
    mapfile -t sources < <("$PYTHON" -c 'import tomllib
print(*tomllib.load(open("pyproject.toml", "rb"))["tool"]["cibuildwheel"]["test-sources"], sep="\n")')
    cp -r "${sources[@]}" "$ELSEWHERE"
}

build_modes() { "$PYTHON" .ci/check_build_modes.py "$OUT"/sdist/*.tar.gz; }

# Build one wheel from the sdist, alone in its folder, and print its path.
wheel() { # YES-OR-NO FOLDER PYTHON...
    local mode=$1 folder=$2 pure=no file
    shift 2
    rm -rf "$folder"
    HOTLOOP_BUILD_EXT=$mode "$@" -m pip wheel --quiet --no-deps --wheel-dir "$folder" "$OUT"/sdist/*.tar.gz >&2
    file=$(echo "$folder"/*.whl)
    [[ $file != *-py3-none-any.whl ]] || pure=yes
    if [ "$mode" = "$pure" ]; then
        echo "HOTLOOP_BUILD_EXT=$mode made ${file##*/}" >&2
        return 1
    fi
    echo "$file"
}

# Install a wheel into a new environment, and make sure that this is what its tests will import.
install_wheel() { # WHEEL IMPLEMENTATION PYTHON...
    local wheel=$1 implementation=$2
    shift 2
    "$@" -m pip install --quiet "$wheel[test,examples]"
    (cd "$ELSEWHERE" && "$@" "$ROOT/.ci/check_install.py" "$ROOT" "$implementation")
}

# The project's tests on what is installed, or those of `tests`, which must have passed on every implementation named.
test_installed() { # NAME IMPLEMENTATIONS PYTHON...
    local report=$OUT/$1.xml implementations=$2
    shift 2
    (cd "$ELSEWHERE" && HOTLOOP_TEST_IMPLS=$implementations "$@" -m pytest -m "not conformance" --numprocesses=3 --junitxml="$report" "${tests[@]}")
    # shellcheck disable=SC2086  # a word for each implementation
    "$PYTHON" .ci/check_junit.py "$report" ${implementations//,/ }
}

# The wheels of this Python: that they are whole. The first two stages have run every test on the same files, and the other Pythons'
# wheels are tested with all of them.
compiled_wheel() {
    local file tests
    mapfile -t tests <.ci/wheel-tests.txt
    file=$(wheel yes "$OUT/wheel" "$PYTHON")
    "$PYTHON" -m venv "$OUT/wheel-venv"
    install_wheel "$file" c "$OUT/wheel-venv/bin/python"
    test_installed wheel c "$OUT/wheel-venv/bin/python"
}

pure_wheel() {
    local file tests
    mapfile -t tests <.ci/wheel-tests.txt
    file=$(wheel no "$OUT/pure-wheel" "$PYTHON")
    "$PYTHON" -m venv "$OUT/pure-venv"
    install_wheel "$file" python "$OUT/pure-venv/bin/python"
    test_installed pure-wheel python "$OUT/pure-venv/bin/python"
}

debug_build() {
    # The interpreter's own headers are not ours to mend: only what comes from ext/ and from Cython is an error.
    CFLAGS="-Werror" HOTLOOP_TEST_IMPLS=c make debug-test PYTEST_ARGS="--junitxml=$OUT/debug.xml"
    "$PYTHON" .ci/check_junit.py "$OUT/debug.xml" c
}

kqueue_backend() {
    CFLAGS="-Werror" HOTLOOP_TEST_IMPLS=c make kqueue-test PYTEST_ARGS="--junitxml=$OUT/kqueue.xml"
    "$PYTHON" .ci/check_junit.py "$OUT/kqueue.xml" c
}

# Wheel, CPython's own suites and the tests on another interpreter. The command's last word is the interpreter, what comes
# before it is how to get there; the environment made by it is only usable that way.
other_interpreter() { # VERSION COMMAND IMPLEMENTATIONS
    local words venv file implementation tests=() conformance=0
    read -ra words <<<"$2"
    local way=("${words[@]:0:${#words[@]}-1}")
    venv=$OUT/python$1-venv
    "${words[@]}" -m venv "$venv"
    local python=("${way[@]}" "$venv/bin/python")
    file=$(wheel yes "$OUT/python$1" "${python[@]}")
    install_wheel "$file" c "${python[@]}"
    "${python[@]}" tests/stdlib/run.py --impl c || conformance=$?
    # Again with hotloop.asyncio's objects in asyncio's place. Code 4: on this Python there are none.
    for implementation in c+compiled asyncio+compiled; do
        [ "$conformance" -eq 0 ] || break
        "${python[@]}" tests/stdlib/run.py --impl "$implementation" || conformance=$?
        [ "$conformance" -ne 4 ] || conformance=0
    done
    test_installed "python$1" "$3" "${python[@]}"
    # Some distributions package an interpreter's own tests apart.
    if [ "$conformance" -eq 3 ]; then
        echo "the tests passed, but CPython $1 has no test.test_asyncio to run"
        exit 77
    fi
    return "$conformance"
}
