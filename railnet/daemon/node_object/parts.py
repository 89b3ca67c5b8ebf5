"""The parts of this node's object that the configuration has the daemon write: labels, condition, taint."""

import asyncio
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial

from cni.rail_observers import Observer
from railnet.configuration import Configuration
from railnet.daemon.node_object.loop import NodeObjectLoop
from railnet.daemon.node_object.rail_errors import RailErrors
from railnet.daemon.node_object.rails_condition import RailsCondition, RailsTaint, pods_of
from railnet.daemon.node_object.topology_labels import TopologyLabels
from railnet.fabric.rails_condition import Errors
from railnet.fabric.topology_labels import RailPlace
from railnet.kernel.sysfs.functions import Sysfs
from railnet.vf.record import Record
from railnet.vf.vf_table import VfTable

_REMOVAL_SECONDS = 5.0


class NodeObject:
    """One loop for each part that `publish` asks for.

    Attributes:
        errors: what is wrong with rails that are ACTIVE, which the condition says.
    """

    def __init__(
        self,
        configuration: Configuration,
        table: VfTable,
        sysfs: Sysfs,
        observe: Observer,
        records: Callable[[], Iterable[Record]],
    ) -> None:
        """Have written nothing yet; `observe` and `records` are as for `RailsCondition`."""
        publish = configuration.publish
        # Each of the two asks the other: the condition names errors, and what is an error depends on the port's state.
        condition = RailsCondition(configuration, table, observe, records, errors=self._wrong)
        self.errors = RailErrors(
            configuration, table, sysfs, observe, lambda rail: pods_of(records(), rail), condition.port_state
        )
        self._topology = TopologyLabels(configuration, table, sysfs)
        self._taint = NodeObjectLoop(RailsTaint(condition, on=publish.rails_taint), table)
        self._condition = NodeObjectLoop(condition, table, self._taint)
        self._labels = NodeObjectLoop(self._topology, table)
        self._by_title: dict[str, NodeObjectLoop] = {}
        if publish.topology_labels:
            self._by_title["the topology labels"] = self._labels
        if publish.rails_condition:
            # The taint's, too: it may have been on when an earlier daemon served.
            self._by_title |= {"the condition of the rails": self._condition, "the taint of the rails": self._taint}

    def _wrong(self) -> Errors:
        return self.errors.errors()

    @property
    def places(self) -> Mapping[int, RailPlace]:
        """Return what is known of each rail's place in the fabric, by the rail's number."""
        return self._topology.places

    @property
    def hung(self) -> Counter[str]:
        """Return the number of threads that wait for a question to a port, or for its counters, by card."""
        return self._topology.hung + self.errors.hung

    @property
    def trouble_of_labels(self) -> str | None:
        """Return why the API server does not have the labels; None if it has them, or none were written yet."""
        return self._labels.trouble

    @property
    def trouble_of_condition(self) -> str | None:
        """Return the same of the condition and the taint."""
        return "; ".join(filter(None, (self._condition.trouble, self._taint.trouble))) or None

    def work(self, *, leaving: bool) -> dict[str, Callable[[], Awaitable[None]]]:
        """Return the loops by title. If Railnet is `leaving` the node, each removes its part."""
        work: dict[str, Callable[[], Awaitable[None]]] = {
            title: partial(loop.run, leaving=leaving) for title, loop in self._by_title.items()
        }
        return work if leaving else work | self.errors.work()

    async def removed(self) -> None:
        """Wait until all parts are gone, for a few seconds: the API server may not answer."""
        with suppress(TimeoutError):
            async with asyncio.timeout(_REMOVAL_SECONDS):
                for loop in self._by_title.values():
                    await loop.gone.wait()
