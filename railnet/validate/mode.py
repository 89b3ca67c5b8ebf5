"""How thoroughly a run tests. Pure."""

from enum import StrEnum


class Mode(StrEnum):
    """The value of `--mode`."""

    QUICK = "quick"
    FULL = "full"
    STRICT = "strict"

    @property
    def seconds(self) -> float:
        """How long each bandwidth is measured, unless the user says it."""
        return {Mode.QUICK: 1.0, Mode.FULL: 3.0, Mode.STRICT: 10.0}[self]

    @property
    def ring_only(self) -> bool:
        """Return whether each node is tested with its two neighbours alone, and not with random nodes as well."""
        return self is Mode.QUICK

    @property
    def tries_rdma(self) -> bool:
        """Return whether the tools for RDMA run where the image has them."""
        return self is not Mode.QUICK

    @property
    def needs_rdma(self) -> bool:
        """Return whether a tool for RDMA that could not be tried is not tested."""
        return self is Mode.STRICT

    @property
    def permits_warnings(self) -> bool:
        """Return whether what may be wrong is a warning; otherwise it is a finding."""
        return self is not Mode.STRICT
