"""ADD and DEL as their stages: what is done in which order, and what is taken back when a stage fails."""

import asyncio
from collections.abc import Generator
from dataclasses import replace
from pathlib import Path
from typing import TypeVar

import pytest

from cni import add, delete
from cni import request as requests
from cni.host.chain import Exec, Output
from cni.host.errors import CniError
from cni.request import Request
from tests.cni.executable import CONF, ENVIRON, PRIMARY
from tests.cni.host.runner import Runner
from tests.vf.builders import FIRST, a_record, an_attachment
from vf.address import PciAddress
from vf.errors import NoAddress
from vf.record import Record

Result = TypeVar("Result")
BYTES = b' {"ips" :[ ]}\n'
FAILED = Output(1 << 8, b'{"code": 999, "msg": "no lease"}', b"")
RECORD = a_record(
    an_attachment(), primary={"conf": {"name": "n", "cniVersion": "1.0.0", "plugins": []}, "runtimeConfig": {}}
)


class Sandbox:
    """Executes nothing and attaches nothing; notes what is asked for, and fails where it is told to."""

    def __init__(self, vfs: tuple[PciAddress, ...] = (), fails: dict[str, Exception] | None = None) -> None:
        self.log: list[str] = []
        self.netns_fd: int | None = None
        self.runner = Runner({("flannel", "ADD"): Output(0, BYTES, b"")})
        self.journal: dict[str, Record] = {}
        self._vfs = vfs
        self._fails = fails or {}

    async def vfs(self, request: Request) -> tuple[PciAddress, ...]:
        return self._vfs

    async def drive(self, steps: Generator[Exec, Output, Result]) -> Result:
        try:
            return self.runner.drive(steps)
        finally:
            self.log += self.runner.calls
            self.runner.executed.clear()

    async def plan(self, request: Request, vfs: tuple[PciAddress, ...], primary: dict[str, object]) -> Record:
        self._do("plan")
        return replace(RECORD, primary=primary)

    async def attach(self, record: Record, netns_fd: int | None) -> None:
        self._do("attach")

    def confirm(self, record: Record) -> None:
        self._do("confirm")

    async def detach(self, record: Record, netns_fd: int | None) -> Record:
        self._do("detach")
        return replace(record, attachments=())

    def forget(self, record: Record) -> None:
        self._do("forget")

    def record(self, key: str) -> Record | None:
        return self.journal.get(key)

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
    return asyncio.run(add.add(request, sandbox, sandbox, sandbox, root))


def run_delete(sandbox: Sandbox, root: Path) -> bytes:
    request = requests.parse({**ENVIRON, b"CNI_COMMAND": b"DEL"}, CONF, None)
    return asyncio.run(delete.delete(request, sandbox, sandbox, root))


def test_pod_without_a_rail_gets_the_primarys_bytes_and_nothing_is_written(root: Path) -> None:
    sandbox = Sandbox()

    assert run_add(sandbox, root) == BYTES
    assert sandbox.log == ["ADD flannel"]


def test_pod_with_a_rail_gets_the_record_first_then_eth0_and_net1_then_the_record_says_so(root: Path) -> None:
    sandbox = Sandbox((FIRST,))

    assert run_add(sandbox, root) == BYTES
    assert sandbox.log == ["plan", "ADD flannel", "attach", "confirm"]


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

    assert sandbox.log == ["plan", "ADD flannel", "DEL flannel", "detach", "forget"]


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

    assert sandbox.log == ["plan", "ADD flannel", "attach", "confirm", "detach", "forget"]


def test_rails_whose_answer_nobody_received_are_taken_back_by_the_record() -> None:
    sandbox = Sandbox()

    asyncio.run(add.take_back(sandbox, RECORD))

    assert sandbox.log == ["detach", "forget"]


def test_del_of_a_pod_without_a_rail_runs_the_primary_as_it_is_now(root: Path) -> None:
    sandbox = Sandbox()

    assert run_delete(sandbox, root) == b""
    assert sandbox.log == ["DEL flannel"]


def test_del_takes_rails_back_then_runs_the_primary_as_it_was_then_forgets(root: Path) -> None:
    conf = {"name": "old", "cniVersion": "1.0.0", "plugins": [{"type": "bridge"}]}
    sandbox = Sandbox()
    sandbox.journal["c0ffee@eth0"] = replace(RECORD, primary={"conf": conf, "runtimeConfig": {}})

    run_delete(sandbox, root)

    assert sandbox.log == ["detach", "DEL bridge", "forget"]


def test_del_needs_no_primary_file_when_there_is_a_record(root: Path) -> None:
    (root / PRIMARY.lstrip("/")).unlink()
    sandbox = Sandbox()
    sandbox.journal["c0ffee@eth0"] = RECORD

    assert run_delete(sandbox, root) == b""


def test_del_keeps_the_record_when_the_primary_fails(root: Path) -> None:
    conf = {"name": "old", "cniVersion": "1.0.0", "plugins": [{"type": "flannel"}]}
    sandbox = Sandbox()
    sandbox.runner = Runner({("flannel", "DEL"): FAILED})
    sandbox.journal["c0ffee@eth0"] = replace(RECORD, primary={"conf": conf, "runtimeConfig": {}})

    with pytest.raises(CniError, match="no lease"):
        run_delete(sandbox, root)

    assert sandbox.log == ["detach", "DEL flannel"]


def test_primary_is_not_run_when_a_rail_cannot_be_taken_back(root: Path) -> None:
    sandbox = Sandbox(fails={"detach": OSError(16, "busy")})
    sandbox.journal["c0ffee@eth0"] = RECORD

    with pytest.raises(OSError, match="busy"):
        run_delete(sandbox, root)

    assert sandbox.log == ["detach"]
