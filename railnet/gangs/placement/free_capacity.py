"""The resources that are left on a node, counted down while members are put on it."""

from collections.abc import Iterable

from railnet.gangs.placement.pod_shape import EVERY_ADDRESS, HostPort, Shape
from railnet.objects.resource_amounts import Amounts

_UNLIMITED = 1 << 62


class FreeCapacity:
    """The resources that are left on a node.

    Attributes:
        free: amounts that nothing takes; negative where the node lost what pods still hold.
        ports: the host ports in use, each with how many pods have it.
        kept: whether it is kept free for the gang at the head of the queue: no other has room there.
    """

    __slots__ = ("_addresses", "free", "kept", "ports")

    def __init__(self, free: Amounts, ports: Iterable[HostPort] = ()) -> None:
        self.free = dict(free)
        self.ports = dict.fromkeys(ports, 1)
        self._addresses: dict[tuple[int, str], int] = {}  # at how many addresses each number is in use
        for port in self.ports:
            self._note(port, 1)
        self.kept = False

    def copy(self) -> "FreeCapacity":
        """Return a copy that can be filled without filling this one."""
        other = FreeCapacity(self.free)
        other.ports, other._addresses = dict(self.ports), dict(self._addresses)
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
            return 0 if any(map(self.has_in_use, shape.ports)) else min(most, 1)
        return most

    def take(self, shape: Shape, pods: int = 1) -> None:
        """Put pods there; a negative number takes them away."""
        free = self.free
        for resource, amount in shape.requests:
            free[resource] = free.get(resource, 0) - amount * pods
        for port in shape.ports:
            before = self.ports.get(port, 0)
            self.ports[port] = before + pods
            if not before:
                self._note(port, 1)
            if not self.ports[port]:
                del self.ports[port]
                self._note(port, -1)

    def _note(self, port: HostPort, addresses: int) -> None:
        number = port.port, port.protocol
        in_use = self._addresses.pop(number, 0) + addresses
        if in_use:
            self._addresses[number] = in_use

    def overfull(self) -> bool:
        """Return whether more is held than the node has."""
        return any(amount < 0 for amount in self.free.values()) or any(pods > 1 for pods in self.ports.values())

    def has_in_use(self, port: HostPort) -> bool:
        """Return whether a pod has a port, or one that conflicts with it. Pods of one author may have twenty thousand ports of a node."""
        if (port.port, port.protocol) not in self._addresses:
            return False
        return port.address == EVERY_ADDRESS or port in self.ports or port._replace(address=EVERY_ADDRESS) in self.ports
