"""What the demo prints: a line for each step, with its seconds, and below it what the step has shown."""

import time
from collections.abc import Callable
from typing import TextIO

_WORDS = 64  # the column of the seconds


class Steps:
    """One step after another; a step ends where the next one begins."""

    def __init__(self, into: TextIO, now: Callable[[], float] = time.monotonic) -> None:
        """Print into a file. If that is a terminal, a step that goes on has a line, too, which the next one replaces."""
        self._into, self._now = into, now
        self._what, self._began = "", 0.0
        self._shown: list[str] = []

    def begin(self, what: str) -> None:
        """End the step before, if there is one, and begin another."""
        self.end()
        self._what, self._began = what, self._now()
        if self._into.isatty():
            self._write(f"  … {what}")

    def show(self, *lines: str) -> None:
        """Have these lines stand below the line of this step."""
        self._shown += lines

    def end(self) -> None:
        """Print the line of the step that goes on, if there is one."""
        self._print("✓")

    def fail(self, error: BaseException) -> None:
        """Print the line of the step that has failed, with what the error and its notes say."""
        self._what = self._what or "starting"
        said = [f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())]
        self.show(*(line for text in said for line in text.splitlines()))
        self._print("✗")

    def _print(self, mark: str) -> None:
        if self._what:
            start = "\r\033[K" if self._into.isatty() else ""
            self._write(f"{start}  {mark} {self._what:{_WORDS}} {self._now() - self._began:5.1f} s\n")
            self._write("".join(f"      {line}".rstrip() + "\n" for line in self._shown))
        self._what, self._shown = "", []

    def _write(self, text: str) -> None:
        self._into.write(text)
        self._into.flush()
