"""`python -m hotloop`: from the arguments to the exit code."""

import os
import sys

from hotloop import __version__
from hotloop.cli import arguments
from hotloop.cli.arguments import Invocation, UsageError

EXIT_BROKEN_PIPE = 1
EXIT_USAGE = 2


def _prepare(invocation: Invocation) -> None:
    """Apply the options to this process and its children, and load the implementation that they select."""
    if invocation.implementation is not None:
        os.environ["HOTLOOP_IMPL"] = invocation.implementation
    if invocation.tasks is not None:
        os.environ["HOTLOOP_TASKS"] = invocation.tasks
    if invocation.debug:
        if sys.flags.ignore_environment:
            raise UsageError("--debug has no effect under python -E or -I, which ignore PYTHONASYNCIODEBUG")
        os.environ["PYTHONASYNCIODEBUG"] = "1"
    try:
        import hotloop._impl  # noqa: F401
    except ImportError as error:
        # The environment asks for what hotloop does not have. Any other ImportError is a bug and shows its traceback.
        if error.name != "hotloop._c":
            raise
        raise UsageError(str(error)) from error
    _prepare_compiled_asyncio(invocation)


def _prepare_compiled_asyncio(invocation: Invocation) -> None:
    from hotloop._asyncio import compiled_layer

    if invocation.compiled_asyncio:
        compiled_layer.ask_child_processes()
    try:
        compiled_layer.install_if_asked(None)
    except ValueError as error:
        raise UsageError(str(error)) from error


def _answer(invocation: Invocation) -> int:
    """Do what _show() does, until what reads the output has seen enough, as `head` has."""
    try:
        status = _show(invocation)
        if sys.stdout is not None:
            sys.stdout.flush()
    except BrokenPipeError:
        # The interpreter is about to flush what is left in the buffer.
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return EXIT_BROKEN_PIPE
    return status


def _show(invocation: Invocation) -> int:
    match invocation.command:
        case "help":
            print(arguments.HELP, end="")
        case "version":
            print(f"hotloop {__version__}")
        case "top":
            from hotloop.cli import top

            return top.run(invocation.arguments)
        case "ps" | "pstree":
            from hotloop.cli import tasks

            return tasks.run(invocation.command, invocation.arguments)
        case "info":
            _prepare(invocation)
            from hotloop.cli import info

            info.show(as_json=bool(invocation.arguments))
    return 0


def _run_program(invocation: Invocation) -> None:
    _prepare(invocation)
    from hotloop.cli import other_loops, program, substitution

    substitution.substitute()
    other_loops.name_our_loop(invocation.target)
    run = program.run_script if invocation.command == "script" else program.run_module
    process = os.getpid()
    try:
        run(invocation.target, invocation.arguments)
    finally:
        if os.getpid() == process:
            other_loops.report_another_loop()


def main(argv: list[str]) -> int:
    """Do what the arguments ask for and return the exit code. A SystemExit of the program passes through."""
    try:
        invocation = arguments.parse(argv)
        if invocation.command in ("script", "module"):
            _run_program(invocation)
            return 0
        return _answer(invocation)
    except UsageError as error:
        print(f"hotloop: {error} (python -m hotloop --help shows the usage)", file=sys.stderr)
        return EXIT_USAGE
