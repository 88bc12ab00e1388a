"""A function in Python, for compiled code that must let the interpreter do what it does between two instructions."""


def run_bytecode() -> None:
    """Raise the exception that PyThreadState_SetAsyncExc() has set for this thread, if there is one."""
