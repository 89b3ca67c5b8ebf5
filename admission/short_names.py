"""Names that are too long for where they shall stand."""

import hashlib

_DIGEST = 8


def shortened(name: str, length: int) -> str:
    """Return a name as it is, or one of at most so many characters: its beginning, and a digest of the whole."""
    if len(name) <= length:
        return name
    digest = hashlib.sha256(name.encode()).hexdigest()[:_DIGEST]
    return f"{name[: length - _DIGEST - 1].rstrip('-_.')}-{digest}"
