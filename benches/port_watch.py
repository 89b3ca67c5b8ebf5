"""How long it takes from a PF's carrier until ListAndWatch sends the change; run by `scripts/bench port-watch`, in the QEMU guest.

QEMU pulls and plugs the cable of an emulated igb. The time begins when sysfs shows the carrier gone or back, looked at each
millisecond, and ends when kubelet has the new list. The guest's processor is emulated, ten times slower than a real one. The kernel
reports carriers that go at most once a second (linkwatch), so the rounds are further apart.
"""

import argparse
import json
import statistics
import threading
import time
from collections.abc import Callable

from tests.vm.guest import PFS, RESOURCE, VFS, Cables, Guest, carrier

ROUNDS = 20
_APART_SECONDS = 1.5
_LOOK_SECONDS = 0.001
_PATIENCE_SECONDS = 60.0
PF = PFS[0]
ALL, OTHERS = VFS * len(PFS), VFS * (len(PFS) - 1)


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(prog="scripts/bench port-watch", description=__doc__)
    parser.add_argument("--json", action="store_true", help="print JSON")
    parser.add_argument("--rounds", type=int, default=ROUNDS, help=f"how often the cable is pulled ({ROUNDS})")
    arguments = parser.parse_args()
    figures: dict[str, list[float]] = {"taken away": [], "given back": []}
    with Guest() as guest, Cables() as cables:
        guest.start_daemon()
        for _ in range(arguments.rounds):
            figures["taken away"].append(milliseconds(guest, lambda: cables.pull(PF), OTHERS))
            figures["given back"].append(milliseconds(guest, lambda: cables.plug(PF), ALL))
    if arguments.json:
        print(json.dumps(figures))
        return
    print(f"a PF's carrier until ListAndWatch has sent it, {arguments.rounds} rounds; ms, median (least to most)")
    for moment, times in figures.items():
        print(f"{moment:<12}{statistics.median(times):>8.0f} ({min(times):.0f} to {max(times):.0f})")


def milliseconds(guest: Guest, act: Callable[[], None], healthy: int) -> float:
    """Pull or plug the cable, and return the time from the carrier's change until kubelet has `healthy` devices."""
    time.sleep(_APART_SECONDS)
    ended: list[float] = []

    def watch() -> None:
        guest.kubelet.wait_for_devices(RESOURCE, healthy, _PATIENCE_SECONDS)
        ended.append(time.monotonic())

    before, watching = carrier(PF), threading.Thread(target=watch)
    watching.start()
    act()
    while carrier(PF) == before:
        time.sleep(_LOOK_SECONDS)
    began = time.monotonic()
    watching.join()
    return max(0.0, (ended[0] - began) * 1000)  # below 0 where the daemon was faster than the look at sysfs


if __name__ == "__main__":
    main()
