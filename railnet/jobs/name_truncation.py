"""Shortening of names that are longer than a label's value or a Service's name may be."""

import hashlib

_DIGEST_LENGTH = 8


def shortened(name: str, length: int) -> str:
    """Return a name of at most `length` characters; a longer name becomes its beginning and a digest of the whole."""
    return name if len(name) <= length else digested(name, length)


def digested(name: str, length: int) -> str:
    """Return the beginning of a name and a digest of the whole, together at most `length` characters."""
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST_LENGTH]
    return f"{name[: length - _DIGEST_LENGTH - 1].rstrip('-_.')}-{digest}"
