"""Fuzzes the C code that reads foreign data: headers of TLS records, and addresses from the kernel and from text.

    python tests/fuzz/fuzz.py                            every target for 60 seconds
    python tests/fuzz/fuzz.py tls_records --seconds 3600
    python tests/fuzz/fuzz.py tls_records --input build/fuzz/tls_records-crash-input    repeat a failed input

Each target is built with AddressSanitizer and UBSan. A compiler with libFuzzer (clang) lets that find the inputs,
guided by the code that they reach, and keep the good ones in build/fuzz/TARGET; otherwise driver.c makes them, by
mutation alone.

Exit code: 0 nothing found, 1 an input has failed, 2 it could not be run.
"""

import argparse
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from seeds import SEEDS

HERE = Path(__file__).resolve().parent
SOURCES = HERE.parent.parent / "ext" / "hotloop" / "_c"
OUTPUT = HERE.parent.parent / "build" / "fuzz"
FLAGS = ["-std=gnu11", "-g", "-O1", "-Wall", "-Wextra", "-Werror", "-fno-sanitize-recover=all"]
TARGETS = tuple(SEEDS)


class Unavailable(Exception):
    """The targets cannot be built here; the text gives the reason."""


@dataclass(frozen=True)
class Compiler:
    command: str
    has_libfuzzer: bool


def _links(command: str, sanitizers: str, folder: Path) -> bool:
    source = folder / "probe.c"
    source.write_text(
        "int LLVMFuzzerTestOneInput(const void *data, unsigned long size) { return data && size; }\n"
        + ("" if "fuzzer" in sanitizers else "int main(void) { return LLVMFuzzerTestOneInput(0, 0); }\n")
    )
    built = [command, f"-fsanitize={sanitizers}", str(source), "-o", str(folder / "probe")]
    return subprocess.run(built, capture_output=True, check=False).returncode == 0


def find_compiler(folder: Path) -> Compiler:
    """$CC, else the best available compiler; `folder` is for files that may stay. Raises Unavailable."""
    folder.mkdir(parents=True, exist_ok=True)
    named = os.environ.get("CC")
    candidates = [named] if named else [name for name in ("clang", "cc", "gcc") if shutil.which(name)]
    if not candidates:
        raise Unavailable("there is no C compiler: neither clang nor cc")
    for command in candidates:
        if shutil.which(command) and _links(command, "fuzzer,address,undefined", folder):
            return Compiler(command, True)
    for command in candidates:
        if shutil.which(command) and _links(command, "address,undefined", folder):
            return Compiler(command, False)
    raise Unavailable(f"cannot link with AddressSanitizer and UBSan: {', '.join(candidates)}")


def build(target: str, compiler: Compiler, folder: Path, sources: Path = SOURCES) -> Path:
    """Build the program of one target in `folder`, for the headers in `sources`. Raises CalledProcessError."""
    program = folder / f"fuzz-{target}"
    sanitizers = "fuzzer,address,undefined" if compiler.has_libfuzzer else "address,undefined"
    files = [str(HERE / f"{target}.c")] + [str(HERE / "driver.c")] * (not compiler.has_libfuzzer)
    options = [*FLAGS, f"-fsanitize={sanitizers}", f"-I{sources}", "-o", str(program)]
    subprocess.run([compiler.command, *options, *files], check=True)
    return program


def write_seeds(target: str, folder: Path) -> list[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    paths = []
    for number, seed in enumerate(SEEDS[target]()):
        paths.append(folder / f"seed-{number:03}")
        paths[-1].write_bytes(seed)
    return paths


def fuzz(program: Path, target: str, compiler: Compiler, folder: Path, limits: Sequence[str]) -> int:
    """Run until one of `limits`, options of libFuzzer, is reached; return the exit code of the program."""
    corpus = folder / target
    seeds = write_seeds(target, corpus)
    # libFuzzer takes a folder of seeds and adds to it.
    inputs = [corpus] if compiler.has_libfuzzer else seeds
    command = [str(program), *limits, f"-artifact_prefix={folder}/{target}-", *map(str, inputs)]
    return subprocess.run(command, check=False, env=without_preloads()).returncode


def without_preloads() -> dict[str, str]:
    """The environment without sanitizer settings: the program has its own sanitizer."""
    return {key: value for key, value in os.environ.items() if key != "LD_PRELOAD" and not key.endswith("SAN_OPTIONS")}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("targets", nargs="*", metavar="TARGET", help=f"of {', '.join(TARGETS)} (default: all)")
    parser.add_argument("--seconds", type=int, default=60, help="for each target (default: 60)")
    parser.add_argument("--seed", type=int, default=0, help="of the random numbers (default: 0, a new one each time)")
    parser.add_argument("--input", type=Path, help="run only this, on the one target named")
    options = parser.parse_args()
    wrong = [name for name in options.targets if name not in TARGETS]
    if wrong:
        parser.error(f"no such target: {', '.join(wrong)}; there are {', '.join(TARGETS)}")
    if options.seconds < 1:
        parser.error(f"--seconds must be at least 1, it is {options.seconds}")
    if options.input is not None and (len(options.targets) != 1 or not options.input.is_file()):
        parser.error("--input takes a file and one target")
    seed = options.seed or int.from_bytes(os.urandom(4)) | 1
    failed = []
    try:
        compiler = find_compiler(OUTPUT)
        for target in options.targets or TARGETS:
            program = build(target, compiler, OUTPUT)
            print(f"{target}: {'libFuzzer' if compiler.has_libfuzzer else 'driver.c'}, seed {seed}", flush=True)
            if options.input is not None:
                command = [str(program), "-runs=0", str(options.input)]
                code = subprocess.run(command, check=False, env=without_preloads()).returncode
            else:
                limits = [f"-max_total_time={options.seconds}", f"-seed={seed}"]
                code = fuzz(program, target, compiler, OUTPUT, limits)
            if code != 0:
                failed.append(target)
    except Unavailable as error:
        print(f"fuzz.py: {error}", file=sys.stderr)
        return 2
    except subprocess.CalledProcessError as error:
        print(f"fuzz.py: the compiler has failed: {error.cmd[0]}", file=sys.stderr)
        return 2
    print(f"FAILED: {', '.join(failed)}" if failed else "nothing found")
    return int(bool(failed))


if __name__ == "__main__":
    sys.exit(main())
