"""A version of Kubernetes, as an API server says its own, and which one gangs need."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

from railnet.vf.errors import Misconfigured

_TEXT = re.compile(r"v?(\d{1,4})\.(\d{1,4})(\D.*)?", re.ASCII)
_MINOR = re.compile(r"(\d{1,4})\D{0,8}", re.ASCII)  # some vendors write "27+"


class KubernetesVersion(NamedTuple):
    """Major and minor version."""

    major: int
    minor: int

    def __str__(self) -> str:
        """Write it as Kubernetes does: `1.27`."""
        return f"{self.major}.{self.minor}"


# Scheduling gates are on by default, and a held pod's node selector may change, since then (kubernetes/enhancements, KEP-3521, KEP-3838).
GANGS_SINCE = KubernetesVersion(1, 27)


def said(answer: Mapping[str, Any]) -> KubernetesVersion | None:
    """Return the version in an API server's answer for /version; None if the answer has none."""
    major, minor = (_MINOR.fullmatch(str(answer.get(key, ""))) for key in ("major", "minor"))
    return KubernetesVersion(int(major[1]), int(minor[1])) if major and minor else None


def written(text: str) -> KubernetesVersion:
    """Read a version that a person writes, such as `1.27` or `v1.27.3`.

    Raises:
        Misconfigured: the text is no version.
    """
    match = _TEXT.fullmatch(text)
    if match is None:
        raise Misconfigured(f"{text!r:.40} is no version of Kubernetes; write it like 1.27")
    return KubernetesVersion(int(match[1]), int(match[2]))
