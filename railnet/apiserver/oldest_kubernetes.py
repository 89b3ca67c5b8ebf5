"""A version of Kubernetes, as an API server says its own, and the oldest one that Railnet works with."""

import re
from collections.abc import Mapping
from typing import Any, NamedTuple

_NUMBER = re.compile(r"(\d{1,4})\D{0,8}", re.ASCII)  # some vendors write "30+"


class KubernetesVersion(NamedTuple):
    """Major and minor version."""

    major: int
    minor: int

    def __str__(self) -> str:
        """Write it as Kubernetes does: `1.30`."""
        return f"{self.major}.{self.minor}"


OLDEST = KubernetesVersion(1, 30)  # docs/compatibility.md says what needs it


def said(answer: Mapping[str, Any]) -> KubernetesVersion | None:
    """Return the version in an API server's answer for /version; None if the answer has none."""
    major, minor = (_NUMBER.fullmatch(str(answer.get(key, ""))) for key in ("major", "minor"))
    return KubernetesVersion(int(major[1]), int(minor[1])) if major and minor else None


def too_old(version: KubernetesVersion) -> str:
    """Return that a version is older than `OLDEST`, in words; empty if it is not."""
    if version >= OLDEST:
        return ""
    return f"Kubernetes {version} is older than {OLDEST}, which Railnet needs; 0.5.x is the last version for it"
