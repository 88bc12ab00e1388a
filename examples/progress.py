"""A progress bar of one line, for a job whose size may still grow."""

import sys
import time

WIDTH = 30  # characters of the bar itself


class ProgressBar:
    """Draws on standard error, and only if that is a terminal: nothing is drawn into a file or a pipe."""

    def __init__(self) -> None:
        self.visible = sys.stderr.isatty()
        self.started = time.monotonic()

    def draw(self, done: int, known: int) -> None:
        if self.visible:
            filled = WIDTH * done // max(known, 1)
            rate = done / max(time.monotonic() - self.started, 0.001)
            bar = f"\r[{'#' * filled:{WIDTH}}] {done:,}/{known:,}, {rate:,.0f}/s "
            print(bar, end="", file=sys.stderr, flush=True)

    def erase(self) -> None:
        if self.visible:
            print("\r\x1b[K", end="", file=sys.stderr, flush=True)
