"""The parts of a bundle while it is gathered: named texts, and what was left out with the reason. Bounded in size and number."""

import json
from collections.abc import Callable, Iterator, Mapping
from typing import Any, NamedTuple

from railnet.errors import RailnetError

MOST_FILE_BYTES = 2 << 20
_LONGEST_WHY = 600


class LeftOut(NamedTuple):
    """Something that is not in the bundle, and why."""

    what: str
    why: str


class BundleParts:
    """Texts by their paths in the bundle; no more than some bytes of them.

    Attributes:
        texts: the texts, by path.
        left_out: what is missing.
    """

    def __init__(self, most_bytes: int) -> None:
        """Take at most `most_bytes`."""
        self.texts: dict[str, str] = {}
        self.left_out: list[LeftOut] = []
        self._most_bytes, self._bytes = most_bytes, 0

    def __iter__(self) -> Iterator[tuple[str, str]]:
        """Yield the path and the text of each."""
        return iter(self.texts.items())

    def add(self, path: str, text: str) -> None:
        """Take a text; one that is too long is left out, and said."""
        size = len(text.encode(errors="replace"))
        if size > MOST_FILE_BYTES:
            self.leave_out(path, f"it has {size} bytes, and a file of a bundle has {MOST_FILE_BYTES} at most")
        elif self._bytes + size > self._most_bytes:
            self.leave_out(path, f"the bundle would have more than {self._most_bytes} bytes")
        else:
            self._bytes += size
            self.texts[path] = text

    def add_json(self, path: str, document: Any) -> None:
        """Take a document."""
        self.add(path, json.dumps(document, indent=1) + "\n")

    def leave_out(self, what: str, why: object) -> None:
        """Note that something is missing."""
        self.left_out.append(LeftOut(what, f"{why!s:.{_LONGEST_WHY}}"))

    def attempt(self, path: str, read: Callable[[], Any]) -> None:
        """Take the document that `read` returns; what refuses it costs this part alone, and is said. A file that is absent is a fact."""
        try:
            self.add_json(path, read())
        except FileNotFoundError as error:
            self.add_json(path, {"absent": error.filename})
        except (RailnetError, OSError, ValueError, LookupError, TypeError, AttributeError) as error:
            self.leave_out(path, str(error) or type(error).__name__)
        except RecursionError:
            self.leave_out(path, "it is nested too deeply")

    def take(self, other: Mapping[str, Any], folder: str) -> None:
        """Take the parts that another machine has sent, under a folder.

        Raises:
            TypeError, ValueError: these are no parts.
        """
        texts, left_out = other.get("files"), other.get("left_out")
        if not isinstance(texts, dict) or not isinstance(left_out, list):
            raise TypeError("the answer is no part of a bundle")
        for path, text in texts.items():
            if not isinstance(text, str):
                raise TypeError("a file of the answer is no text")
            self.add(f"{folder}/{path}", text)
        for entry in left_out:
            what, why = entry  # ValueError: it is no pair
            self.leave_out(f"{folder}/{what}", why)

    def as_json(self) -> dict[str, Any]:
        """Return the parts as `take` reads them."""
        return {"files": self.texts, "left_out": self.left_out}
