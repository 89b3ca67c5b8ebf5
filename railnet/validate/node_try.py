"""What became of a run's pod on a node. Pure."""

from typing import NamedTuple


class NodeTry(NamedTuple):
    """The try of one node.

    Attributes:
        vfs: how many the pod has requested.
        unstarted: why the pod has not started; empty if it has.
        gone: why nothing is known of the node: its pod went before the end, or a job came; empty if neither happened.
    """

    node: str
    vfs: int
    unstarted: str = ""
    gone: str = ""
