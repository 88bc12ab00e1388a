"""Runs a program as `python PROGRAM.py` or `python -m MODULE` would.

The program gets a fresh __main__ module, and sys.argv and sys.path[0] as the interpreter would set them. The exception
that ends it (SystemExit, KeyboardInterrupt, an uncaught exception) propagates to the interpreter, which does what it
always does: the exit code, death by SIGINT, sys.last_exc, atexit. Only the frames of this package are removed from the
traceback.
"""

import builtins
import os
import pkgutil
import runpy
import sys
from collections.abc import Callable
from importlib.machinery import SourceFileLoader, SourcelessFileLoader
from io import open_code
from types import CodeType, ModuleType, TracebackType
from typing import Any, TypeVar, cast

from hotloop.cli.arguments import UsageError

_T = TypeVar("_T")

# From Python 3.15 on, filters for the compiler's warnings can name the module.
_COMPILE_OPTIONS: dict[str, Any] = {"module": "__main__"} if sys.version_info >= (3, 15) else {}


def run_module(name: str, arguments: list[str]) -> None:
    """python -m NAME ARGUMENTS. sys.path[0] is the current folder already, because hotloop was started with -m too."""
    sys.argv = ["-m", *arguments]
    _new_main_module()
    # The interpreter's function for -m: it finds a package's __main__, sets sys.argv[0] and reports what is missing.
    _call(runpy._run_module_as_main, name)  # type: ignore[attr-defined]


def run_script(path: str, arguments: list[str]) -> None:
    """python PATH ARGUMENTS. Raises UsageError if the file cannot be opened."""
    sys.argv = [path, *arguments]
    absolute = _absolute(path)
    if pkgutil.get_importer(absolute) is not None:  # a folder or a zip file: modules are imported from it
        _replace_first_path(absolute, even_if_safe=True)
        _new_main_module()
        _call(runpy._run_module_as_main, "__main__", False)  # type: ignore[attr-defined]
        return
    _replace_first_path(os.path.dirname(os.path.realpath(absolute)), even_if_safe=False)
    loader = (SourcelessFileLoader if absolute.endswith(".pyc") else SourceFileLoader)("__main__", absolute)
    namespace = vars(_new_main_module())
    namespace.update(__file__=absolute, __loader__=loader)
    if sys.version_info < (3, 15):
        namespace["__cached__"] = None
    _call(exec, _load(absolute, loader), namespace)


def _absolute(path: str) -> str:
    """`path` as the interpreter spells it in __file__ and in tracebacks: not normalised, except on Windows."""
    return os.path.abspath(path) if os.name == "nt" else os.path.join(os.getcwd(), path)


def _replace_first_path(folder: str, *, even_if_safe: bool) -> None:
    """Replace the current folder, which `python -m hotloop` put first in sys.path; python -P and -I do not put it."""
    if not sys.flags.safe_path:
        sys.path[0] = folder
    elif even_if_safe:
        sys.path.insert(0, folder)


def _new_main_module() -> ModuleType:
    """A __main__ module without hotloop's names, with the attributes that the interpreter gives it."""
    main = sys.modules["__main__"] = ModuleType("__main__")
    vars(main)["__builtins__"] = builtins
    if sys.version_info < (3, 14):
        main.__annotations__ = {}
    return main


def _load(path: str, loader: SourceFileLoader | SourcelessFileLoader) -> CodeType:
    if isinstance(loader, SourcelessFileLoader):
        return cast(CodeType, _call(loader.get_code, "__main__"))
    try:
        with open_code(path) as file:
            source = file.read()
    except OSError as error:
        raise UsageError(f"can't open file {path!r}: [Errno {error.errno}] {error.strerror}") from error
    return _call(compile, source, path, "exec", dont_inherit=True, **_COMPILE_OPTIONS)


def _call(function: Callable[..., _T], *arguments: Any, **options: Any) -> _T:
    """Call into the program. The tracebacks of its exceptions begin below this frame."""
    try:
        return function(*arguments, **options)
    except BaseException as error:
        # A SystemExit is not shown, except under python -i, so sys.excepthook stays as it is: a program may look at it
        # in an atexit function.
        if not isinstance(error, SystemExit) or sys.flags.inspect:
            _report_without_our_frames()
        raise


def _report_without_our_frames() -> None:
    """Hide this package's frames from sys.excepthook, be it the interpreter's or the program's own."""
    hook = sys.excepthook

    def excepthook(kind: type[BaseException], error: BaseException, traceback: TracebackType | None) -> None:
        sys.excepthook = hook
        rest = _below_our_frames(traceback)
        if getattr(sys, "last_traceback", None) is traceback:
            sys.last_traceback = rest  # for post-mortem debuggers and the program's own hook
        hook(kind, error.with_traceback(rest), rest)

    sys.excepthook = excepthook


def _below_our_frames(traceback: TracebackType | None) -> TracebackType | None:
    entry = traceback
    while entry is not None:
        if entry.tb_frame.f_code is _call.__code__:
            return entry.tb_next
        entry = entry.tb_next
    return traceback
