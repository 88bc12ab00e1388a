"""The frames of other threads, of which all instruments read, whatever the garbage collector has to do meanwhile."""

import pytest

pytestmark = pytest.mark.only("c", reason="up to CPython 3.11.8 only C code can avoid the hang")


def test_a_finalizer_that_releases_the_gil(impl):
    """Up to CPython 3.11.8 the collector runs inside sys._current_frames(), which holds a lock of the interpreter's.

    Another thread gets the GIL from the finalizer, and waits for the lock without giving it back."""
    impl.run_script("""if True:
        import faulthandler, gc, threading, time
        from hotloop.instruments.stacks import stack_of_thread

        class Garbage:
            def __init__(self):
                self.itself = self

            def __del__(self):
                finalized.set()
                time.sleep(0.05)

        def look():
            finalized.wait()
            stack_of_thread(threading.main_thread().ident)

        faulthandler.dump_traceback_later(10, exit=True)
        finalized = threading.Event()
        other = threading.Thread(target=look)
        other.start()
        gc.disable()
        Garbage()
        gc.set_threshold(1)
        gc.enable()
        stack_of_thread(other.ident)
        gc.collect()
        other.join()
        assert gc.isenabled()
        gc.disable()
        stack_of_thread(other.ident)
        assert not gc.isenabled()
    """)
