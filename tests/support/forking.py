"""The beginning of test scripts that fork."""

IN_CHILD = """
import warnings
warnings.simplefilter("ignore", DeprecationWarning)  # 3.12 and later: fork() in a process with threads

def in_child(function):
    pid = os.fork()
    if pid == 0:
        try:
            function()
        except BaseException as error:
            print(type(error).__name__, error, flush=True)
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert status == 0, "the child failed"
"""
