"""The errors that Railnet raises on purpose. A name says what must be done about the error.

`OSError` is not wrapped: it passes from `kernel/` with the operation and its operands added as notes.
"""


class RailnetError(Exception):
    """Something Railnet refuses or cannot do, in words for the person who must act."""


class Misconfigured(RailnetError):
    """The author of a configuration must act; the message names the key or file and what it should be."""


class NotReady(RailnetError):
    """Time will mend it: the same request may succeed when it is repeated."""


class Unusable(RailnetError):
    """A VF cannot serve a pod as it is: its driver, netdev, GUID or port is missing or wrong."""


class NotOurs(RailnetError):
    """The VF belongs to another sandbox, or is no device of Railnet's."""


class PortInactive(RailnetError):
    """The fabric did not make a VF's port active in time: its subnet manager, or the cable, must be looked at."""


class NoAddress(RailnetError):
    """No address can be given on net1: the slice is unknown or exhausted."""


class NotPermitted(RailnetError):
    """The pod asks for what its namespace may not have; the administrator permits it in the node's `limits`."""


class Differs(RailnetError):
    """A sandbox is not what its record says; the message names the first difference. Its pod must be made anew."""
