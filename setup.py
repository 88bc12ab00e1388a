"""Builds hotloop._c from the Cython sources in ext/; everything that is not the extension is in pyproject.toml.

Environment variables, read at build time:

HOTLOOP_BUILD_EXT   yes: the extension must build, a failure is an error. no: pure Python, a py3-none-any wheel.
                    auto (default): build it where a C compiler works; where none does, say so and build the pure wheel.
HOTLOOP_PROFILE     yes: profile-guided optimisation, which needs GCC. The extension is built with counters, training.py
                    runs on it, and it is built again for what was counted; a failure is an error. no: it is built once.
                    auto (default): yes for a wheel where that works, else no.
HOTLOOP_DEBUG       1: bounds, wraparound and None checks and assertions on, no optimisation, debug symbols. (A release
                    build has debug symbols if CFLAGS holds -g.)
HOTLOOP_COVERAGE    1: line tracing on, so that coverage.py's Cython plugin can see the .pyx lines. Slow.
HOTLOOP_SANITIZE    address,undefined: a debug build under AddressSanitizer and UBSan that keeps no freed memory
                    (runtime/recycling.h), so that every use of it is seen. `make sanitize-test` says how it is run.
                    thread: a debug build under ThreadSanitizer, for an interpreter that was configured with
                    --disable-gil --with-thread-sanitizer (`make race-test`).
HOTLOOP_POLLER      auto (default): epoll or kqueue, whichever the system has. none: neither; loops use the standard
                    library's selectors. kqueue-shim: for testing on Linux, the kqueue backend on tests/kqueue_shim.

Each variant has its own folder under build/, so that switching between them never mixes their objects.
"""

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from setuptools import Distribution, Extension, setup
from setuptools.command.bdist_wheel import bdist_wheel
from setuptools.command.build_ext import build_ext
from setuptools.errors import BaseError, CCompilerError
from setuptools.modified import newer_group

SOURCES = Path("ext", "hotloop", "_c")
SHARED_OBJECT = "hotloop._c.runtime.shared_object"
TRAINING = Path("ext", "training.py")
MINIMUM_CYTHON = (3, 3)
PLATFORMS = ("linux", "darwin", "freebsd", "netbsd", "openbsd", "dragonfly")


def setting(name: str, allowed: tuple[str, ...], default: str) -> str:
    value = os.environ.get(name, "") or default
    if value not in allowed:
        raise SystemExit(f"hotloop: {name} must be one of {', '.join(allowed)}; it is {value!r}")
    return value


BUILD_EXT = setting("HOTLOOP_BUILD_EXT", ("yes", "no", "auto"), default="auto")
DEBUG = setting("HOTLOOP_DEBUG", ("0", "1"), default="0") == "1"
COVERAGE = setting("HOTLOOP_COVERAGE", ("0", "1"), default="0") == "1"
SANITIZE = setting("HOTLOOP_SANITIZE", ("no", "address,undefined", "thread"), default="no")
DEBUG = DEBUG or SANITIZE != "no"
POLLER = setting("HOTLOOP_POLLER", ("auto", "none", "kqueue-shim"), default="auto")
PROFILE = setting("HOTLOOP_PROFILE", ("yes", "no", "auto"), default="auto")
OLDEST_PROFILING_GCC = 10  # for -fprofile-partial-training
TRAINING_SECONDS = 600  # it takes one or two
# Environment variables that the training does not get: hotloop's own, those that have the counts written elsewhere, and
# those of debug mode, in which other code runs.
UNTRAINED_SETTINGS = ("HOTLOOP_", "GCOV_", "PYTHONASYNCIODEBUG", "PYTHONDEVMODE", "PYTHONINSPECT")
# Environment variables with which one variant is compiled and linked differently.
COMPILER_SETTINGS = ("CC", "CFLAGS", "CPPFLAGS", "LDFLAGS", "LDSHARED", "ARCHFLAGS")


def gcc_version() -> int:
    """The major version of the C compiler if that is GCC; else 0."""
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")
    try:
        asked = subprocess.run([*compiler, "-dM", "-E", "-x", "c", os.devnull], capture_output=True, text=True)
    except OSError:
        return 0
    macros = dict(line.split(maxsplit=2)[1:] for line in asked.stdout.splitlines() if len(line.split()) > 2)
    return 0 if "__clang__" in macros else int(macros.get("__GNUC__", 0))


def unsupported_platform() -> str | None:
    if sys.implementation.name != "cpython":
        return f"the extension is for CPython, this is {sys.implementation.name}"
    if not sys.platform.startswith(PLATFORMS):
        return f"the extension is for Linux, macOS and the BSDs, this is {sys.platform}"
    if POLLER == "kqueue-shim" and sys.platform != "linux":
        return f"HOTLOOP_POLLER=kqueue-shim is for Linux, this is {sys.platform}"
    return None


def profile_is_wanted() -> bool:
    if PROFILE == "no" or (PROFILE == "auto" and "bdist_wheel" not in sys.argv):
        return False
    if DEBUG or COVERAGE or BUILD_EXT == "no":
        reason = "this is no release build of the extension"
    elif unsupported := unsupported_platform():
        reason = unsupported
    elif gcc_version() < OLDEST_PROFILING_GCC:
        reason = f"the C compiler is not GCC {OLDEST_PROFILING_GCC} or newer"
    else:
        return True
    if PROFILE == "yes":
        raise SystemExit(f"hotloop: HOTLOOP_PROFILE=yes cannot be met: {reason}")
    return False


PROFILED = profile_is_wanted()
VARIANT = "-".join(
    ["debug" if DEBUG else "release"]
    + ["profile"] * PROFILED
    + ["coverage"] * COVERAGE
    + ["sanitize"] * (SANITIZE == "address,undefined")
    + ["thread"] * (SANITIZE == "thread")
    + [POLLER] * (POLLER != "auto")
)
BUILD_BASE = Path("build", VARIANT)

DIRECTIVES = {
    "language_level": 3,
    # Methods as plain method descriptors: the cheapest thing the interpreter can call, and what asyncio's C types have.
    "binding": False,
    # A __text_signature__, which is where inspect.signature() and stubtest look on such a method.
    "embedsignature": True,
    "embedsignature.format": "clinic",
    # Loops, futures and tasks cannot be pickled, in asyncio neither.
    "auto_pickle": False,
    "freethreading_compatible": True,
    # What goes wrong in a __del__ is for sys.unraisablehook(), which shows the traceback. By default Cython prints
    # another one before, of which only the heading is left when the interpreter is nearly gone.
    "unraisable_tracebacks": False,
    "boundscheck": DEBUG,
    "wraparound": DEBUG,
    "nonecheck": DEBUG,
    "initializedcheck": DEBUG,
    "cdivision": True,
    "linetrace": COVERAGE,
}

COMPILE_ARGS = [
    # Ahead of every module: it keeps the lines of compiled code out of tracebacks.
    "-include",
    str(SOURCES / "runtime" / "tracebacks.h"),
    "-Wall",
    "-Wextra",
    # What Cython generates, whatever the source says: every slot function has its full C signature, ...
    "-Wno-unused-parameter",
    # ... type objects and method tables are filled up to the last field in use, ...
    "-Wno-missing-field-initializers",
    # ... and helpers are emitted before it is known whether anything calls them.
    "-Wno-unused-function",
]
if DEBUG:
    COMPILE_ARGS += ["-O0", "-g", "-UNDEBUG"]
else:
    # An assertion that is compiled out leaves its temporaries behind.
    COMPILE_ARGS += ["-O3", "-Wno-unused-variable"]
    if not any(option.startswith("-g") for option in os.environ.get("CFLAGS", "").split()):
        # Many interpreters were built with -g and pass it on: four fifths of each module would be debug symbols.
        COMPILE_ARGS += ["-g0"]
LINK_ARGS: list[str] = []
if SANITIZE != "no":
    LINK_ARGS += [f"-fsanitize={SANITIZE}"]
    # The first undefined operation ends the program: a line in a log would go unread.
    COMPILE_ARGS += [*LINK_ARGS, "-fno-sanitize-recover=all", "-fno-omit-frame-pointer", "-O1"]

# The compiler writes the counts beside the objects, and reads them there. Threads count, too.
COUNTING_ARGS = ["-fprofile-generate", "-fprofile-update=prefer-atomic"]
# What was not run is optimised as without a profile, and what ran seldom is not optimised for size.
COUNTED_ARGS = [
    *("-fprofile-use", "-fprofile-correction", "-fprofile-partial-training", "--param=hot-bb-count-ws-permille=1000"),
    # False alarms about code that is moved apart. A build without a profile has these warnings.
    *("-Wno-maybe-uninitialized", "-Wno-stringop-overflow"),
    # GCC finds no counts for a module that the training did not load, or looks for them in another place.
    "-Werror=missing-profile" if PROFILE == "yes" else "-Wno-missing-profile",
]

MACROS: list[tuple[str, str | None]] = []
if not DEBUG:
    # Also those of Python's headers: NDEBUG is among the interpreter's options, which CFLAGS replaces when it is set.
    MACROS += [("CYTHON_WITHOUT_ASSERTIONS", "1"), ("NDEBUG", "1")]
if SANITIZE != "no":
    MACROS += [("HOTLOOP_KEEP_NOTHING", "1"), ("CYTHON_USE_FREELISTS", "0")]
if COVERAGE:
    MACROS += [("CYTHON_TRACE", "1"), ("CYTHON_TRACE_NOGIL", "1")]
    # Cython reports through sys.monitoring on 3.12 and later, which coverage.py's plugins cannot read.
    MACROS.append(("CYTHON_USE_SYS_MONITORING", "0"))

# The further macros of modules, by the folder that they are in.
FLOOR_MACROS: dict[str, list[tuple[str, str | None]]] = {
    floor: [("HOTLOOP_NO_TRACEBACK_ENTRIES", "1")] for floor in ("tasks", "highlevel")
}

INCLUDE = [SOURCES]
if POLLER == "none":
    MACROS.append(("HOTLOOP_POLLER_NONE", "1"))
elif POLLER == "kqueue-shim":
    MACROS.append(("HOTLOOP_POLLER_KQUEUE_SHIM", "1"))
    INCLUDE.append(Path("tests", "kqueue_shim"))


class ExtensionUnavailable(Exception):
    """This machine cannot build the extension; the text says what is missing."""


class SharedObject(Extension):
    """The one file that all modules are linked into."""

    def __init__(self, modules: list[Extension]) -> None:
        sources = [source for module in modules for source in module.sources]
        super().__init__(SHARED_OBJECT, sources, extra_link_args=LINK_ARGS)
        self.modules = modules


def compiled_modules() -> list[Extension]:
    """An Extension for each .pyx file, which has what it is compiled with."""
    headers = (path for folder in INCLUDE for suffix in ("**/*.pxd", "**/*.h") for path in folder.glob(suffix))
    shared = ["setup.py", *[str(TRAINING)] * PROFILED, *sorted(map(str, headers))]
    sources = {f"hotloop._c.{path.parent.name}.{path.stem}": path for path in sorted(SOURCES.glob("*/*.pyx"))}
    macros = {name: [*MACROS, *FLOOR_MACROS.get(path.parent.name, [])] for name, path in sources.items()}
    macros[SHARED_OBJECT].append(("HOTLOOP_MODULES", f'"{" ".join(sources)}"'))
    return [
        Extension(
            name,
            [str(path)],
            include_dirs=[str(folder) for folder in INCLUDE],
            depends=shared,
            define_macros=macros[name],
            extra_compile_args=COMPILE_ARGS,
        )
        for name, path in sources.items()
    ]


def extensions() -> list[Extension]:
    if BUILD_EXT == "no":
        return []
    if reason := unsupported_platform():
        if BUILD_EXT == "yes":
            raise SystemExit(f"hotloop: HOTLOOP_BUILD_EXT=yes cannot be met: {reason}")
        print_notice(reason)
        return []
    return [SharedObject(compiled_modules())]


def print_notice(reason: str) -> None:
    rule = "*" * 100
    lines = [
        rule,
        "hotloop: THE COMPILED EXTENSION WAS NOT BUILT. The pure-Python fallback is installed instead:",
        "it behaves the same, at the speed of plain asyncio.",
        *(f"  reason: {line}" for line in reason.splitlines() or ["unknown"]),
        "  remedy: install a C compiler and this Python's headers (gcc, python3-dev), then install again;",
        "          HOTLOOP_BUILD_EXT=yes turns this notice into an error, HOTLOOP_BUILD_EXT=no silences it.",
        rule,
    ]
    print("\n" + "\n".join(lines) + "\n", file=sys.stderr, flush=True)


def translate(modules: list[Extension], *, force: bool, jobs: int) -> None:
    """Turn the .pyx sources into C under build/ and point the modules there.

    An error in a .pyx is a bug in hotloop, not a property of the machine: Cython's CompileError passes through.
    """
    try:
        import Cython
        from Cython.Build import cythonize
    except ImportError as error:
        raise ExtensionUnavailable(f"Cython cannot be imported ({error})") from error
    if tuple(int(part) for part in Cython.__version__.split(".")[:2]) < MINIMUM_CYTHON:
        wanted = ".".join(map(str, MINIMUM_CYTHON))
        raise ExtensionUnavailable(f"Cython {wanted} or newer is needed, this is {Cython.__version__}")
    folder = BUILD_BASE / "cython"
    # Cython compares the C with the sources only; the directives are here.
    directives_changed = any(path.stat().st_mtime < Path("setup.py").stat().st_mtime for path in folder.rglob("*.c"))
    translated = cythonize(
        modules,
        build_dir=str(folder),
        include_path=["ext"],
        compiler_directives=DIRECTIVES,
        force=force or directives_changed,
        nthreads=jobs,
    )
    saving = [path for path in folder.rglob("*.c") if "ExceptionSave" in path.read_text(encoding="utf-8")]
    if not saving or not all(mend_saved_exception(path) for path in saving):
        raise ExtensionUnavailable(f"mend_saved_exception() does not know the code of Cython {Cython.__version__}")
    # cythonize returns copies without what setuptools has noted on the originals.
    sources = {module.name: module.sources for module in translated}
    for module in modules:
        module.sources = sources[module.name]


def mend_saved_exception(path: Path) -> bool:
    """Mend what Cython's C does to the exception that is being handled.

    A function with a `try` saves that exception, and puts it back when a `return` leaves the `try`, or when it has
    caught another one. What Cython saves is the topmost exception, which any caller may handle, but it puts it back
    into the innermost coroutine or generator. That one would have it until it ends: as `sys.exception()`, and as the
    context of its own exceptions. The innermost one's own must be saved.

    False if it is other code than was expected here.
    """
    text = path.read_text(encoding="utf-8")
    before, definition, after = text.partition(
        "void __Pyx__ExceptionSave(PyThreadState *tstate, PyObject **type, PyObject **value, PyObject **tb) {\n"
    )
    body, end, rest = after.partition("\n}\n")
    mended = body.replace("__Pyx_PyErr_GetTopmostException(tstate)", "tstate->exc_info")
    if mended != body:
        path.write_text(before + definition + mended + end + rest, encoding="utf-8")
    return mended.startswith(
        "  #if CYTHON_USE_EXC_INFO_STACK && PY_VERSION_HEX >= 0x030B00a4\n"
        "    _PyErr_StackItem *exc_info = tstate->exc_info;\n"
    )


class BuildSharedObject(build_ext):
    """build_ext that compiles each module by itself, several at a time, and only if it has changed."""

    def build_extension(self, shared_object: SharedObject) -> None:
        path = self.get_ext_fullpath(shared_object.name)
        changed = [module for module in shared_object.modules if self.is_out_of_date(module, path)]
        if not changed:
            return
        with ThreadPoolExecutor(self.parallel or 1) as compilers:
            # A profile is one of all modules together.
            list(compilers.map(self.compile_module, shared_object.modules if PROFILED else changed))
        self.compiler.link_shared_object(
            [self.object_of(module) for module in shared_object.modules],
            path,
            libraries=self.get_libraries(shared_object),
            extra_postargs=shared_object.extra_link_args,
            debug=self.debug,
            build_temp=self.build_temp,
            target_lang="c",
        )

    def is_out_of_date(self, module: Extension, path: str) -> bool:
        # Older than the shared object: the module's own object may be of the other one of the two builds for a profile.
        files = [*module.sources, *module.depends]
        if module.name == SHARED_OBJECT:
            # It lists the modules: one may have come or gone.
            files += map(str, SOURCES.iterdir())
        return bool(self.force or not Path(self.object_of(module)).exists() or newer_group(files, path))

    def object_of(self, module: Extension) -> str:
        (path,) = self.compiler.object_filenames(module.sources, output_dir=self.build_temp)
        return str(path)

    def compile_module(self, module: Extension) -> None:
        self.compiler.compile(
            module.sources,
            output_dir=self.build_temp,
            macros=module.define_macros,
            include_dirs=module.include_dirs,
            debug=self.debug,
            extra_postargs=module.extra_compile_args,
            depends=module.depends,
        )


class BuildExt(BuildSharedObject):
    """build_ext that translates only when it really builds, and that knows how to do without the extension."""

    def run(self) -> None:
        try:
            for extension in self.extensions:
                translate(extension.modules, force=bool(self.force), jobs=self.parallel or 0)
            if self.extensions:
                self.compile()
        except (ExtensionUnavailable, CCompilerError, BaseError) as error:
            if "yes" in (BUILD_EXT, PROFILE):
                raise
            self.drop_extension()
            print_notice(f"{type(error).__name__}: {error}")

    def compile(self) -> None:
        """Compile and link what has changed; everything, if it was done with other settings the last time."""
        compiled_with = Path(self.build_temp, "compiled-with.json")
        # With a profile the options depend on whether it may be missing.
        settings = json.dumps([PROFILED and PROFILE, *map(os.environ.get, COMPILER_SETTINGS)])
        self.force = self.force or not compiled_with.exists() or compiled_with.read_text(encoding="utf-8") != settings
        compiled_with.unlink(missing_ok=True)  # a failure leaves objects of both
        if not (PROFILED and self.build_with_profile()):
            super().run()
        compiled_with.write_text(settings, encoding="utf-8")

    def build_with_profile(self) -> bool:
        """Build with counters, run the training, and build for what was counted. False if that has failed and the
        extension is to be built without: as where the compiler lacks its library for counters, or builds for another
        machine."""
        built = Path(self.build_temp, "built-with-profile")
        compiler = self.compiler
        try:
            self.record_profile()
            self.set_compiler_options(COUNTED_ARGS, [])
            # What was compiled before, without these counts, may look up to date.
            self.force = self.force or not built.exists()
            super().run()
        except (CCompilerError, BaseError, OSError, subprocess.SubprocessError) as error:
            if PROFILE == "yes":
                raise SystemExit(f"hotloop: HOTLOOP_PROFILE=yes cannot be met: {error}") from error
            print(f"hotloop: the extension is built without a profile: {error}", file=sys.stderr, flush=True)
            built.unlink(missing_ok=True)
            self.set_compiler_options([], [])
            self.compiler = compiler  # run() has an object in place of the option
            self.force = True
            return False
        built.touch()
        return True

    def record_profile(self) -> None:
        """Build with counters, and run the training."""
        counting = BuildSharedObject(self.distribution)
        counting.build_temp = self.build_temp
        # Beside the objects: a module writes its counts beside the object that it was linked from. An editable install
        # has another folder for the objects each time.
        counting.build_lib = str(Path(self.build_temp, "counting"))
        counting.parallel = self.parallel
        counting.force = self.force
        self.set_compiler_options(COUNTING_ARGS, COUNTING_ARGS)
        counting.ensure_finalized()
        environment = {name: value for name, value in os.environ.items() if not name.startswith(UNTRAINED_SETTINGS)}
        environment["PYTHONPATH"] = str(Path(counting.build_lib).absolute())
        counting.run()
        shutil.copytree("src", counting.build_lib, ignore=shutil.ignore_patterns("*.so"), dirs_exist_ok=True)
        subprocess.run([sys.executable, str(TRAINING)], env=environment, timeout=TRAINING_SECONDS, check=True)

    def set_compiler_options(self, compiling: list[str], linking: list[str]) -> None:
        for extension in self.extensions:
            extension.extra_link_args = [*LINK_ARGS, *linking]
            for module in extension.modules:
                module.extra_compile_args = [*COMPILE_ARGS, *compiling]

    def drop_extension(self) -> None:
        """Forget the extension, also one that was built before."""
        for path in [*self.get_outputs(), *self.get_output_mapping().values()]:
            Path(path).unlink(missing_ok=True)
        self.extensions[:] = []
        self.distribution.ext_modules = []


def bill_of_materials(distribution: Distribution, *, compiled: bool) -> dict[str, object]:
    """What a wheel is made of, in CycloneDX 1.6. The same wheel has the same one: no time and no serial number."""
    name, version = distribution.get_name(), distribution.get_version()
    itself = {
        "type": "library",
        "bom-ref": f"pkg:pypi/{name}@{version}",
        "name": name,
        "version": version,
        "purl": f"pkg:pypi/{name}@{version}",
        "licenses": [{"license": {"id": "MIT"}}],
    }
    parts = []
    if compiled:
        import Cython

        cython = f"pkg:pypi/cython@{Cython.__version__}"
        parts.append(
            {
                "type": "library",
                "bom-ref": cython,
                "name": "Cython",
                "version": Cython.__version__,
                "description": "The code that it generates is part of each compiled module.",
                "purl": cython,
                "licenses": [{"license": {"id": "Apache-2.0"}}],
            }
        )
    references = [part["bom-ref"] for part in parts]
    return {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {"component": itself},
        "components": parts,
        "dependencies": [
            {"ref": itself["bom-ref"], "dependsOn": references},
            *({"ref": reference} for reference in references),
        ],
    }


class BdistWheel(bdist_wheel):
    """bdist_wheel that tags the wheel after the build, when it is known whether it holds an extension. It adds the bill
    of materials, where PEP 770 has it."""

    bill: dict[str, object] | None = None

    def run(self) -> None:
        self.run_command("build")
        self.root_is_pure = not self.distribution.has_ext_modules()
        self.bill = bill_of_materials(self.distribution, compiled=not self.root_is_pure)
        self.skip_build = True  # super() forgets that build_ext has run: it would train and compile again
        super().run()

    def write_wheelfile(self, wheelfile_base: str, *arguments: str) -> None:
        super().write_wheelfile(wheelfile_base, *arguments)
        if self.bill is None:
            # An editable install, which has the file made without run().
            return
        # RECORD is written afterwards, of all files.
        folder = Path(wheelfile_base, "sboms")
        folder.mkdir(exist_ok=True)
        (folder / "hotloop.cdx.json").write_text(json.dumps(self.bill, indent=2) + "\n", encoding="utf-8")


# Cython's worker processes import this file again where processes are spawned and not forked.
if __name__ == "__main__":
    setup(
        ext_modules=extensions(),
        cmdclass={"build_ext": BuildExt, "bdist_wheel": BdistWheel},
        options={
            "build": {"build_base": str(BUILD_BASE)},
            "build_ext": {"parallel": os.cpu_count() or 1},
        },
    )
