"""The resources that are left on a node, counted down while members are put on it."""

from collections.abc import Iterable

from railnet.gangs.placement.pod_shape import HostPort, Shape
from railnet.objects.resource_amounts import Amounts

_UNLIMITED = 1 << 62


class FreeCapacity:
    """The resources that are left on a node.

    Attributes:
        free: amounts that nothing takes; negative where the node lost what pods still hold.
        ports: the host ports in use, each with how many pods have it.
        kept: whether it is kept free for the gang at the head of the queue: no other has room there.
    """

    __slots__ = ("free", "kept", "ports")

    def __init__(self, free: Amounts, ports: Iterable[HostPort] = ()) -> None:
        self.free = dict(free)
        self.ports = dict.fromkeys(ports, 1)
        self.kept = False

    def copy(self) -> "FreeCapacity":
        """Return a copy that can be filled without filling this one."""
        other = FreeCapacity(self.free)
        other.ports = dict(self.ports)
        other.kept = self.kept
        return other

    def slots(self, shape: Shape) -> int:
        """Return for how many more pods of a shape there is room."""
        if self.kept:
            return 0
        free, most = self.free, _UNLIMITED
        for resource, amount in shape.scarce_first:
            fits = free.get(resource, 0) // amount
            if fits < most:
                if fits <= 0:
                    return 0
                most = fits
        if shape.ports:
            return 0 if self._port_in_use(shape) else min(most, 1)
        return most

    def take(self, shape: Shape, pods: int = 1) -> None:
        """Put pods there; a negative number takes them away."""
        free = self.free
        for resource, amount in shape.requests:
            free[resource] = free.get(resource, 0) - amount * pods
        for port in shape.ports:
            self.ports[port] = self.ports.get(port, 0) + pods
            if not self.ports[port]:
                del self.ports[port]

    def overfull(self) -> bool:
        """Return whether more is held than the node has."""
        return any(amount < 0 for amount in self.free.values()) or any(pods > 1 for pods in self.ports.values())

    def _port_in_use(self, shape: Shape) -> bool:
        return any(mine.conflicts(theirs) for mine in shape.ports for theirs in self.ports)
