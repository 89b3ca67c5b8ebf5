"""The errors that Railnet raises on purpose. Each class says which party must act.

`OSError` is not wrapped: it passes from `railnet.kernel` with the operation and its operands added as notes.
"""


class RailnetError(Exception):
    """Railnet refuses a request or cannot fulfil it. The message is for the person who must act."""


class Misconfigured(RailnetError):
    """The author of a configuration must act. The message names the key or the file, and a correct value."""


class NotReady(RailnetError):
    """A condition does not hold yet. The same request may succeed when it is repeated later."""


class Unusable(RailnetError):
    """A VF cannot serve a pod in its present state: its driver, netdev, GUID or port is missing or wrong."""


class NotOurs(RailnetError):
    """The VF belongs to another sandbox, or the device is not one of Railnet's."""


class PortInactive(RailnetError):
    """The fabric did not activate a VF's port in time. The administrator must check the subnet manager and the cable."""


class NoAddress(RailnetError):
    """No address is available for a rail: the node's slice is unknown or exhausted."""


class NotPermitted(RailnetError):
    """The pod's namespace may not have what the pod requests. The administrator can permit it in the node's `limits`."""


class Differs(RailnetError):
    """A sandbox differs from its record. The message names the first difference. The pod must be created again."""
