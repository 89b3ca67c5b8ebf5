"""The devices that a node offers by DRA now: the VFs of its pools, without those that pods have by the device plugin."""

from collections.abc import Callable, Mapping, Sequence

from deviceplugin.devices import OfferedVf
from railnet.dra.card_facts import CardReads
from railnet.dra.device_plugin_holders import DevicePluginHolders
from railnet.dra.devices import Devices, DraDevice
from railnet.vf.vf_table import VfTable

OfferedVfs = Callable[[], Mapping[str, Sequence[OfferedVf]]]


class OfferedDevices:
    """Computes the devices again and again."""

    def __init__(self, table: VfTable, offered: OfferedVfs, cards: CardReads, holders: DevicePluginHolders) -> None:
        """Offer the VFs of `offered`, which returns them for each pool, by resource."""
        self._table, self._offered, self._cards, self._holders = table, offered, cards, holders
        self._devices = Devices()

    async def now(self) -> tuple[DraDevice, ...]:
        """Return the devices in their order.

        Raises:
            NotReady, ValueError, OSError: as `DevicePluginHolders.held`.
        """
        held = await self._holders.held()
        cards = await self._cards.now(self._table.inventory)
        pfs = {pf.address: pf for pf in self._table.inventory.pfs}
        devices = self._devices.now(self._offered(), pfs, cards)
        return tuple(device for device in devices if device.vf not in held) if held else devices
