"""Makes the standard streams fit to be written to: those that were closed before the program started, and those of an old locale."""

import io
import os
import sys

_STREAMS = (("stdin", os.O_RDONLY, "r"), ("stdout", os.O_WRONLY, "w"), ("stderr", os.O_WRONLY, "w"))


def open_closed_streams() -> None:
    """Open /dev/null in place of each standard stream that was closed: such an input is empty, and such an output is lost.

    Without this, Python has None for the stream, which has no methods, and `print(file=None)` writes an error to standard output. The next
    file or connection that is opened would also get the stream's descriptor.
    """
    for descriptor, (name, flags, mode) in enumerate(_STREAMS):
        if getattr(sys, name) is None:
            _open_null(descriptor, flags)
            setattr(sys, name, os.fdopen(descriptor, mode, encoding="utf-8"))


def write_utf_8() -> None:
    """Write UTF-8 in any locale, as kubectl does: YAML and JSON are UTF-8, and ASCII or Latin-1 lack characters of Railnet's own texts."""
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() != "utf-8":
            stream.reconfigure(encoding="utf-8")


def _open_null(descriptor: int, flags: int) -> None:
    opened = os.open(os.devnull, flags)
    if opened != descriptor:
        os.dup2(opened, descriptor)
        os.close(opened)
    os.set_inheritable(descriptor, True)
