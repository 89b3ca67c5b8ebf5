"""Writes the report into the HTML file that the user has named, and says before a run, which may take an hour, if that cannot be done."""

import errno
import os
from pathlib import Path

from railnet.errors import Misconfigured
from railnet.validate.reports.html_report import html
from railnet.validate.reports.report import Report


def require_writable(path: Path) -> None:
    """Refuse a path that no page can be written to. A file that is there keeps its content, and no new one is left.

    Raises:
        Misconfigured: it is a folder, its folder does not exist, or the user may not write there.
    """
    file = Path(os.path.realpath(path))
    try:
        if file.is_dir():
            raise Misconfigured(f"--html: {path} is a folder; name a file in it, such as {path / 'validate.html'}")
        _try_to_open(file)
    except FileNotFoundError:
        raise Misconfigured(
            f"--html: {path} cannot be written: the folder {file.parent} does not exist; make it, or name another"
        ) from None
    except OSError as error:
        raise Misconfigured(
            f"--html: {path} cannot be written: {error.strerror}; name a file in a folder in which you may write"
        ) from None


def _try_to_open(file: Path) -> None:
    is_new = not file.exists()
    if is_new or file.is_file():
        file.open("ab").close()
        if is_new:
            file.unlink()
    elif not os.access(file, os.W_OK):  # a pipe, or a terminal: the reader of a pipe takes its closing for the end
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))


def write(path: Path, report: Report) -> None:
    """Write the page. Half a surrogate pair, which a pod's words can have as JSON and no encoding has, is written as its number.

    Raises:
        OSError: it cannot be written.
    """
    path.write_text(html(report), encoding="utf-8", errors="backslashreplace")
