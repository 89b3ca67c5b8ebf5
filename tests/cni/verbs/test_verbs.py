"""The stages of ADD, CHECK, DEL and GC: their order, and what is undone when a stage fails."""

import asyncio
from collections.abc import Generator, Mapping
from dataclasses import replace
from ipaddress import ip_interface
from pathlib import Path
from typing import TypeVar

import pytest

from cni import primary_configuration
from cni import request as requests
from cni.attachment.ipam_plugin import Given
from cni.host.chain import TIMED_OUT, Exec, ExecOutput, Primary
from cni.host.errors import CniError
from cni.request import CniRequest
from cni.request_cancellation import TimeLimits
from cni.sandbox_locks import PerKey
from cni.verbs import add, check, delete, gc
from cni.verbs.verb_dependencies import Parts
from railnet.errors import Differs, NoAddress, NotPermitted, Unusable
from railnet.kubelet.checkpointed_responses import ContainerAllocation
from railnet.vf.pci_address import PciAddress
from railnet.vf.record import Netns, Record, RecordedIpam, SandboxPod, Stage
from tests.cni.fake_executable import CONF, ENVIRON, PRIMARY
from tests.cni.host.fake_runner import Runner
from tests.railnet.vf.builders import FIRST, a_record, an_attachment

Result = TypeVar("Result")
BYTES = b' {"ips" :[ ]}\n'
IPAM = RecordedIpam({"name": "railnet-x", "ipam": {"type": "host-local"}}, ("net1",), "/opt/cni/bin")
FAILED = ExecOutput(1 << 8, b'{"code": 999, "msg": "no lease"}', b"")


def a_conf(*plugins: str, disable_check: bool = False) -> dict[str, object]:
    listed = [{"type": plugin} for plugin in plugins]
    return {"name": "old", "cniVersion": "1.0.0", "plugins": listed, "disableCheck": disable_check}


RECORD = a_record(an_attachment(), primary={"conf": a_conf(), "runtimeConfig": {}})


class Sandbox:
    """Executes nothing and attaches nothing; logs each call, and fails in those that `fails` names."""

    def __init__(self, vfs: tuple[PciAddress, ...] = (), fails: dict[str, Exception] | None = None) -> None:
        self.log: list[str] = []
        self.netns_fd: int | None = None
        self.runner = Runner({("flannel", "ADD"): ExecOutput(0, BYTES, b"")})
        self.journal: dict[str, Record] = {}
        self.sandboxes = PerKey()
        self.ipam: RecordedIpam | None = None
        self.answered: tuple[ContainerAllocation, ...] = ()
        self.differs: str | None = None
        self.uncollected: list[str] = []
        self.elsewhere = False
        self._vfs = vfs
        self._fails = fails or {}

    def parts(self, root: Path) -> Parts:
        """Be each of the parts that verbs call."""
        limits = TimeLimits(delegate=20, add=60)
        return Parts(self, self, self.sandboxes, self, PrimaryGc(self), root, limits)

    async def vfs(self, pod: SandboxPod) -> tuple[PciAddress, ...]:
        return self._vfs

    async def of(self, pod: SandboxPod) -> list[tuple[str, str]]:
        return [("rdma/ib_vf", str(vf)) for vf in self._vfs]

    async def until_watched(self) -> None:
        pass

    async def refuse_held_by_other_pods(self, pod: SandboxPod, holders: Mapping[PciAddress, str]) -> None:
        pass

    async def allocations(self, pod: SandboxPod) -> tuple[ContainerAllocation, ...]:
        return self.answered

    async def drive(self, steps: Generator[Exec, ExecOutput, Result]) -> Result:
        try:
            return self.runner.drive(steps)
        finally:
            self.log += self.runner.calls
            self.runner.executed.clear()

    def permit(self, pod: SandboxPod, resources: set[str]) -> None:
        if "permit" in self._fails:
            raise self._fails["permit"]

    async def plan(self, request: CniRequest, vfs: tuple[PciAddress, ...], primary: Primary) -> Record:
        self._do("plan")
        return replace(RECORD, primary=primary_configuration.as_recorded(primary, {}), ipam=self.ipam)

    def record_addresses(self, record: Record, given: dict[str, Given]) -> Record:
        self._do("address")
        return replace(record, attachments=(replace(record.attachments[0], addresses=given["net1"].addresses),))

    async def attach(self, record: Record, netns_fd: int | None) -> None:
        self._do("attach")
        self.attached = record

    def confirm(self, record: Record) -> None:
        self._do("confirm")

    def announce(self, record: Record) -> None:
        self._do("announce")

    def addresses_may_be_elsewhere(self, record: Record) -> bool:
        return self.elsewhere

    def begin_detach(self, record: Record) -> Record:
        self._do("begin")
        return replace(record, stage="detaching")

    async def detach(self, record: Record, netns_fd: int | None) -> Record:
        self._do("detach")
        return replace(record, attachments=())

    def forget(self, record: Record) -> None:
        self._do("forget")

    def attached(self, vf: PciAddress) -> None:
        return None

    def record(self, key: str) -> Record | None:
        return self.journal.get(key)

    def rebuilt(self, netns: Netns | None, ifname: str) -> Record | None:
        return next((record for record in self.journal.values() if record.rebuilt and record.ifname == ifname), None)

    async def difference(self, record: Record, netns: Netns | None, netns_fd: int | None) -> str | None:
        self._do("difference")
        return self.differs

    async def collect(self, valid: frozenset[str], younger_than: float, seconds: float) -> list[str]:
        self._do(f"collect all but {', '.join(valid)}, younger than {younger_than:g} s")
        return self.uncollected

    def _do(self, what: str) -> None:
        self.log.append(what)
        if what in self._fails:
            raise self._fails[what]


@pytest.fixture
def root(tmp_path: Path) -> Path:
    path = tmp_path / PRIMARY.lstrip("/")
    path.parent.mkdir(parents=True)
    path.write_text('{"cniVersion": "1.0.0", "name": "cbr0", "plugins": [{"type": "flannel"}]}')
    return tmp_path


def run_add(sandbox: Sandbox, root: Path) -> bytes:
    request = requests.parse(ENVIRON, CONF, None)
    return asyncio.run(add.add(request, sandbox, sandbox.parts(root)))


def run_check(sandbox: Sandbox, root: Path) -> bytes:
    stdin = CONF.replace(b'"0.3.1"', b'"1.0.0"')
    request = requests.parse({**ENVIRON, b"CNI_COMMAND": b"CHECK"}, stdin, None)
    return asyncio.run(check.check(request, sandbox, sandbox.parts(root)))


def run_delete(sandbox: Sandbox, root: Path, ifname: str = "eth0") -> bytes:
    request = requests.parse({**ENVIRON, b"CNI_COMMAND": b"DEL", b"CNI_IFNAME": ifname.encode()}, CONF, None)
    return asyncio.run(delete.delete(request, sandbox, sandbox.parts(root)))


def test_pod_without_a_rail_gets_the_primarys_bytes_and_nothing_is_written(root: Path) -> None:
    sandbox = Sandbox()

    assert run_add(sandbox, root) == BYTES
    assert sandbox.log == ["ADD flannel"]


def test_pod_with_a_rail_gets_the_record_first_then_eth0_and_net1_then_the_record_says_so(root: Path) -> None:
    sandbox = Sandbox((FIRST,))

    assert run_add(sandbox, root) == BYTES
    assert sandbox.log == ["plan", "ADD flannel", "attach", "confirm", "announce"]


@pytest.mark.parametrize("stage", ["planned", "detaching"])
def test_add_that_died_with_its_daemon_is_taken_back_and_begun_again(root: Path, stage: Stage) -> None:
    sandbox = Sandbox((FIRST,))
    sandbox.journal["c0ffee@eth0"] = replace(RECORD, stage=stage)

    assert run_add(sandbox, root) == BYTES
    assert sandbox.log == ["detach", "forget", "plan", "ADD flannel", "attach", "confirm", "announce"]


def test_addresses_of_an_add_that_died_are_given_back_before_it_is_begun_again(root: Path) -> None:
    sandbox = Sandbox((FIRST,))
    sandbox.journal["c0ffee@eth0"] = replace(RECORD, stage="planned", ipam=IPAM)

    run_add(sandbox, root)

    assert sandbox.log[:4] == ["detach", "DEL host-local net1", "forget", "plan"]


def test_record_of_an_add_that_died_stays_when_its_rails_cannot_be_taken_back(root: Path) -> None:
    sandbox = Sandbox((FIRST,), {"detach": OSError(5, "refused")})
    sandbox.journal["c0ffee@eth0"] = replace(RECORD, stage="planned")

    with pytest.raises(OSError, match="refused"):
        run_add(sandbox, root)

    assert sandbox.log == ["detach"]


def test_add_that_is_done_is_not_taken_back_by_another_add(root: Path) -> None:
    sandbox = Sandbox((FIRST,))
    sandbox.journal["c0ffee@eth0"] = replace(RECORD, stage="attached")

    run_add(sandbox, root)

    assert sandbox.log[0] == "plan"  # which refuses it


def test_nothing_is_done_when_the_primary_is_missing(root: Path) -> None:
    (root / PRIMARY.lstrip("/")).unlink()
    sandbox = Sandbox((FIRST,))

    with pytest.raises(CniError, match="cannot be read"):
        run_add(sandbox, root)

    assert sandbox.log == []


def test_nothing_is_run_when_there_is_no_plan(root: Path) -> None:
    sandbox = Sandbox((FIRST,), {"plan": NoAddress("all taken")})

    with pytest.raises(NoAddress):
        run_add(sandbox, root)

    assert sandbox.log == ["plan"]


def test_rails_are_taken_back_when_the_primary_fails(root: Path) -> None:
    sandbox = Sandbox((FIRST,))
    sandbox.runner = Runner({("flannel", "ADD"): FAILED})

    with pytest.raises(CniError, match="no lease"):
        run_add(sandbox, root)

    assert sandbox.log == ["plan", "ADD flannel", "detach", "forget"]


def test_ipam_plugin_that_took_too_long_is_not_run_again_and_the_record_stays_for_it(root: Path) -> None:
    sandbox = Sandbox((FIRST,))
    sandbox.ipam = IPAM
    sandbox.runner = Runner(
        {("flannel", "ADD"): ExecOutput(0, BYTES, b""), ("host-local", "ADD"): ExecOutput(TIMED_OUT, b"", b"")}
    )

    with pytest.raises(CniError, match="took longer"):
        run_add(sandbox, root)

    assert sandbox.log == ["plan", "ADD flannel", "ADD host-local net1", "DEL flannel", "detach"]


@pytest.mark.parametrize("undo", [Runner(), Runner({("flannel", "DEL"): FAILED})], ids=["undone", "undo fails too"])
def test_primary_and_rails_are_taken_back_when_attaching_fails(root: Path, undo: Runner) -> None:
    sandbox = Sandbox((FIRST,), {"attach": OSError(16, "busy")})
    sandbox.runner = undo

    with pytest.raises(OSError, match="busy"):
        run_add(sandbox, root)

    assert sandbox.log == ["plan", "ADD flannel", "attach", "DEL flannel", "detach", "forget"]


def test_record_stays_when_taking_back_fails(root: Path) -> None:
    sandbox = Sandbox((FIRST,), {"attach": OSError(16, "busy"), "detach": OSError(5, "refused")})

    with pytest.raises(OSError, match="busy") as raised:
        run_add(sandbox, root)

    assert "forget" not in sandbox.log
    (note,) = raised.value.__notes__
    assert "taking its rails back failed: [Errno 5] refused" in note


def test_rails_are_taken_back_when_the_record_cannot_be_confirmed(root: Path) -> None:
    sandbox = Sandbox((FIRST,), {"confirm": OSError(28, "No space left on device")})

    with pytest.raises(OSError, match="No space left"):
        run_add(sandbox, root)

    assert sandbox.log == ["plan", "ADD flannel", "attach", "confirm", "DEL flannel", "detach", "forget"]


def test_add_asks_the_ipam_plugin_after_the_primary_and_attaches_what_it_gave(root: Path) -> None:
    sandbox = Sandbox((FIRST,))
    sandbox.ipam = IPAM
    sandbox.runner.answers["host-local", "ADD"] = ExecOutput(0, b'{"ips": [{"address": "10.61.0.2/24"}]}', b"")

    run_add(sandbox, root)

    assert sandbox.log == ["plan", "ADD flannel", "ADD host-local net1", "address", "attach", "confirm", "announce"]
    assert sandbox.attached.attachments[0].addresses == (ip_interface("10.61.0.2/24"),)


@pytest.mark.parametrize("fails", ["ADD host-local net1", "attach"])
def test_add_that_fails_gives_the_ipam_plugins_addresses_back(root: Path, fails: str) -> None:
    sandbox = Sandbox((FIRST,), {"attach": OSError(16, "busy")})
    sandbox.ipam = IPAM
    sandbox.runner.answers["host-local", "ADD"] = FAILED if fails != "attach" else ExecOutput(0, b'{"ips": []}', b"")

    with pytest.raises((OSError, CniError), match=r"busy|no lease"):
        run_add(sandbox, root)

    begun = sandbox.log.index(fails)
    assert sandbox.log[begun + 1 :] == ["DEL flannel", "detach", "DEL host-local net1", "forget"]


def test_rail_whose_container_would_get_other_devices_is_taken_back_before_a_plugin_runs(root: Path) -> None:
    sandbox = Sandbox((FIRST,))
    sandbox.answered = (ContainerAllocation(frozenset({str(FIRST)}), frozenset({"/dev/infiniband/uverbs9"}), {}),)

    with pytest.raises(Unusable, match="uverbs9"):
        run_add(sandbox, root)

    assert sandbox.log == ["plan", "detach", "forget"]


def test_ipam_plugin_that_is_not_there_is_not_asked_to_take_anything_back(root: Path) -> None:
    sandbox = Sandbox((FIRST,))
    sandbox.ipam = IPAM
    sandbox.runner.answers["host-local", "ADD"] = ExecOutput(-2, b"", b"no folder of CNI_PATH has it")

    with pytest.raises(CniError, match="'host-local' cannot be executed"):
        run_add(sandbox, root)

    assert sandbox.log[-3:] == ["DEL flannel", "detach", "forget"]


def test_record_stays_when_the_ipam_plugin_takes_nothing_back(root: Path) -> None:
    sandbox = Sandbox((FIRST,), {"attach": OSError(16, "busy")})
    sandbox.ipam = IPAM
    sandbox.runner.answers["host-local", "ADD"] = ExecOutput(0, b'{"ips": []}', b"")
    sandbox.runner.answers["host-local", "DEL"] = FAILED

    with pytest.raises(OSError, match="busy"):
        run_add(sandbox, root)

    assert "forget" not in sandbox.log


def test_del_runs_ipam_plugin_and_primary_whatever_becomes_of_the_first(root: Path) -> None:
    sandbox = Sandbox()
    sandbox.runner.answers["host-local", "DEL"] = FAILED
    sandbox.journal["c0ffee@eth0"] = replace(
        RECORD, primary={"conf": a_conf("flannel"), "runtimeConfig": {}}, ipam=IPAM
    )

    with pytest.raises(CniError, match="no lease"):
        run_delete(sandbox, root)

    assert sandbox.log == ["detach", "DEL host-local net1", "DEL flannel"]


def test_del_of_a_pod_without_a_rail_runs_the_primary_as_it_is_now(root: Path) -> None:
    sandbox = Sandbox()

    assert run_delete(sandbox, root) == b""
    assert sandbox.log == ["DEL flannel"]


def test_del_runs_the_primary_as_it_was_and_leaves_the_rails_for_after_the_answer(root: Path) -> None:
    sandbox = Sandbox()
    sandbox.journal["c0ffee@eth0"] = replace(RECORD, primary={"conf": a_conf("bridge"), "runtimeConfig": {}})

    run_delete(sandbox, root)

    assert sandbox.log == ["begin", "DEL bridge"]


def test_del_takes_rails_back_before_the_successor_has_their_addresses_on_another_node(root: Path) -> None:
    sandbox = Sandbox()
    sandbox.elsewhere = True
    sandbox.journal["c0ffee@eth0"] = replace(RECORD, primary={"conf": a_conf("bridge"), "runtimeConfig": {}})

    run_delete(sandbox, root)

    assert sandbox.log == ["detach", "DEL bridge", "forget"]


def test_del_removes_a_record_whose_rails_are_back_already_before_the_answer(root: Path) -> None:
    sandbox = Sandbox()
    sandbox.journal["c0ffee@eth0"] = replace(
        RECORD, attachments=(), primary={"conf": a_conf("bridge"), "runtimeConfig": {}}
    )

    run_delete(sandbox, root)

    assert sandbox.log == ["begin", "DEL bridge", "forget"]


def test_del_takes_rails_back_before_their_ipam_plugin_gives_the_addresses_to_another_pod(root: Path) -> None:
    sandbox = Sandbox()
    sandbox.journal["c0ffee@eth0"] = replace(RECORD, primary={"conf": a_conf("bridge"), "runtimeConfig": {}}, ipam=IPAM)

    run_delete(sandbox, root)

    assert sandbox.log == ["detach", "DEL host-local net1", "DEL bridge", "forget"]


def test_del_of_a_sandbox_whose_record_was_lost_uses_the_rebuilt_record(root: Path) -> None:
    sandbox = Sandbox()
    sandbox.journal["unknown-1@eth0"] = replace(RECORD, container_id="unknown-1", primary={})

    run_delete(sandbox, root)

    assert sandbox.log == ["detach", "DEL flannel", "forget"]


def test_del_of_another_interface_of_that_sandbox_leaves_what_was_found_to_its_own(root: Path) -> None:
    sandbox = Sandbox()
    sandbox.journal["unknown-1@eth0"] = replace(RECORD, container_id="unknown-1", primary={})

    run_delete(sandbox, root, "other")

    assert sandbox.log == ["DEL flannel"]


def test_del_waits_for_the_lock_of_a_rebuilt_record(root: Path) -> None:
    sandbox = Sandbox()
    sandbox.journal["unknown-1@eth0"] = replace(RECORD, container_id="unknown-1", primary={})
    request = requests.parse({**ENVIRON, b"CNI_COMMAND": b"DEL"}, CONF, None)

    async def main() -> list[str]:
        async with sandbox.sandboxes.held("unknown-1@eth0"):
            deleting = asyncio.create_task(delete.delete(request, sandbox, sandbox.parts(root)))
            await asyncio.sleep(0)
            meanwhile = list(sandbox.log)
            del sandbox.journal["unknown-1@eth0"]
        await deleting
        return meanwhile

    assert asyncio.run(main()) == []
    assert sandbox.log == ["DEL flannel"]


def test_del_needs_no_primary_file_when_there_is_a_record(root: Path) -> None:
    (root / PRIMARY.lstrip("/")).unlink()
    sandbox = Sandbox()
    sandbox.journal["c0ffee@eth0"] = RECORD

    assert run_delete(sandbox, root) == b""


def test_del_takes_the_rails_back_and_keeps_the_record_when_the_primary_fails(root: Path) -> None:
    sandbox = Sandbox()
    sandbox.runner = Runner({("flannel", "DEL"): FAILED})
    sandbox.journal["c0ffee@eth0"] = replace(RECORD, primary={"conf": a_conf("flannel"), "runtimeConfig": {}})

    with pytest.raises(CniError, match="no lease"):
        run_delete(sandbox, root)

    assert sandbox.log == ["begin", "DEL flannel", "detach"]


def test_del_takes_the_rails_back_when_the_primarys_configuration_cannot_be_read(root: Path) -> None:
    (root / PRIMARY.lstrip("/")).unlink()
    sandbox = Sandbox()
    sandbox.journal["c0ffee@eth0"] = replace(RECORD, primary={})

    with pytest.raises(CniError, match="cannot be read"):
        run_delete(sandbox, root)

    assert sandbox.log == ["begin", "detach"]


def test_del_reports_the_primarys_error_when_the_rails_fail_after_it(root: Path) -> None:
    sandbox = Sandbox(fails={"detach": OSError(16, "busy")})
    sandbox.runner = Runner({("flannel", "DEL"): FAILED})
    sandbox.journal["c0ffee@eth0"] = replace(RECORD, primary={"conf": a_conf("flannel"), "runtimeConfig": {}})

    with pytest.raises(CniError, match="no lease") as raised:
        run_delete(sandbox, root)

    (note,) = raised.value.__notes__
    assert "taking the rails back failed: [Errno 16] busy" in note


def test_primary_is_not_run_when_a_rail_with_an_ipam_plugin_cannot_be_taken_back(root: Path) -> None:
    sandbox = Sandbox(fails={"detach": OSError(16, "busy")})
    sandbox.journal["c0ffee@eth0"] = replace(RECORD, ipam=IPAM)

    with pytest.raises(OSError, match="busy"):
        run_delete(sandbox, root)

    assert sandbox.log == ["detach"]


def test_check_of_a_pod_without_a_rail_runs_the_primary_as_it_is_now(root: Path) -> None:
    sandbox = Sandbox()

    assert run_check(sandbox, root) == b""
    assert sandbox.log == ["CHECK flannel"]


def test_check_runs_the_primary_as_it_was_and_then_looks_at_the_rails(root: Path) -> None:
    (root / PRIMARY.lstrip("/")).unlink()
    sandbox = Sandbox((FIRST,))
    sandbox.journal["c0ffee@eth0"] = replace(RECORD, primary={"conf": a_conf("bridge"), "runtimeConfig": {}})

    assert run_check(sandbox, root) == b""
    assert sandbox.log == ["CHECK bridge", "difference"]


def test_check_looks_at_the_rails_although_the_primarys_author_wants_no_check_of_it(root: Path) -> None:
    sandbox = Sandbox((FIRST,))
    conf = a_conf("bridge", disable_check=True)
    sandbox.journal["c0ffee@eth0"] = replace(RECORD, primary={"conf": conf, "runtimeConfig": {}})

    run_check(sandbox, root)

    assert sandbox.log == ["difference"]


def test_check_tells_what_differs(root: Path) -> None:
    sandbox = Sandbox()
    sandbox.journal["c0ffee@eth0"] = RECORD
    sandbox.differs = "its MTU is 1500"

    with pytest.raises(Differs, match="its MTU is 1500"):
        run_check(sandbox, root)


def test_check_of_a_pod_that_has_a_device_and_no_record_names_the_device(root: Path) -> None:
    with pytest.raises(Differs, match=f"gave this pod {FIRST}, but its sandbox has no rail"):
        run_check(Sandbox((FIRST,)), root)


def test_check_of_the_primary_comes_first(root: Path) -> None:
    sandbox = Sandbox((FIRST,))
    sandbox.runner = Runner({("flannel", "CHECK"): FAILED})

    with pytest.raises(CniError, match="no lease"):
        run_check(sandbox, root)


# GC.


def run_gc(sandbox: Sandbox, root: Path) -> bytes:
    primary = root / PRIMARY.lstrip("/")
    primary.write_text('{"cniVersion": "1.1.0", "name": "cbr0", "plugins": [{"type": "flannel"}]}')
    stdin = CONF.replace(b'"0.3.1"', b'"1.1.0", "cni.dev/valid-attachments": [{"containerID": "a", "ifname": "eth0"}]')
    request = requests.parse({**ENVIRON, b"CNI_COMMAND": b"GC"}, stdin, None)
    return asyncio.run(gc.collect(request, sandbox, sandbox.parts(root)))


class PrimaryGc:
    """What dead containers left of the primary, by the log of a sandbox."""

    def __init__(self, sandbox: Sandbox) -> None:
        self._sandbox = sandbox

    async def collect(self, primary: Primary, valid: frozenset[str], seconds: float) -> list[str]:
        self._sandbox.log.append(f"collect of {primary.name} all but {', '.join(valid)}")
        return self._sandbox.uncollected[1:]


def test_gc_takes_back_what_the_runtime_does_not_list_then_asks_the_primary(root: Path) -> None:
    sandbox = Sandbox()

    assert run_gc(sandbox, root) == b""
    assert sandbox.log == [
        "collect all but a@eth0, younger than 60 s",
        "collect of cbr0 all but a@eth0",
        "GC flannel",
    ]


def test_gc_asks_the_primary_also_when_something_could_not_be_taken_back(root: Path) -> None:
    sandbox = Sandbox()
    sandbox.uncollected = ["sandbox x@eth0: no", "container y: no"]

    with pytest.raises(CniError, match="sandbox x@eth0: no; container y: no; container y: no") as raised:
        run_gc(sandbox, root)

    assert (raised.value.code, sandbox.log[-1]) == (5, "GC flannel")


def test_pod_that_may_not_have_its_pool_is_refused_before_anything_is_done(root: Path) -> None:
    sandbox = Sandbox((FIRST,), {"permit": NotPermitted("no")})

    with pytest.raises(NotPermitted):
        run_add(sandbox, root)

    assert sandbox.log == []
