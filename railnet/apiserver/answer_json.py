"""The JSON of the API server's answers, whatever an object's author wrote into it: one object must not make a whole list unreadable.

Python reads JSON of a thousand levels and integers of 4,300 digits, and kube-apiserver stores deeper ones, such as in the `opaque.parameters` of a
ResourceClaim. No part that is read here is so deep or so long.
"""

import json
import re
from typing import Any

_DEEPEST = 200  # levels that are kept: a TrainJob's template of a template has about thirty
_MOST_DIGITS = 64  # Kubernetes has numbers of 64 bits
_OPENING, _CLOSING = b"[{", b"]}"
_TOKEN = re.compile(rb'"(?:[^"\\]++|\\.)*+"|[\[\]{}]', re.DOTALL)


def parsed(text: bytes) -> Any:
    """Return what a text says. If Python cannot read it, values below `_DEEPEST` levels, and longer integers than any of Kubernetes, are None.

    Raises:
        ValueError, RecursionError: it is no JSON.
    """
    try:
        return json.loads(text)
    except RecursionError:
        text = _without_deep_values(text)
    except ValueError:  # an integer may be too long
        pass
    try:
        return json.loads(text, parse_int=_integer)
    except RecursionError:  # what is too deep stands behind the integer
        return json.loads(_without_deep_values(text), parse_int=_integer)


def _integer(text: str) -> int | None:
    return int(text) if len(text) <= _MOST_DIGITS else None


def _without_deep_values(text: bytes) -> bytes:
    pieces: list[bytes] = []
    depth, kept_from = 0, 0
    for token in _TOKEN.finditer(text):
        sign = text[token.start()]
        if sign in _OPENING:
            depth += 1
            if depth == _DEEPEST + 1:
                pieces += (text[kept_from : token.start()], b"null")
        elif sign in _CLOSING:
            depth -= 1
            if depth == _DEEPEST:
                kept_from = token.end()
    return b"".join((*pieces, text[kept_from:]))
