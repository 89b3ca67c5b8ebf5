"""Former CNI folders are left after a request that shows the present ones in use; a disk that hangs there holds no other task."""

import asyncio
import json
import logging
import threading
from collections.abc import Awaitable, Callable, Collection
from dataclasses import replace
from pathlib import Path

import pytest

from cni.host import netconf
from cni.host.environment import Environment
from cni.request import CniRequest
from railnet.configuration import HostConfiguration
from railnet.daemon.conflist import cni_folders_in_use
from railnet.daemon.conflist.cni_folders_in_use import CniFoldersInUse
from railnet.install import former_folders
from railnet.vf.record import SandboxPod
from tests.waiting import until_async

HOST = replace(HostConfiguration(), cni_conf=Path("/k3s/net.d"), cni_bin=Path("/k3s/bin"))


def a_request(path: str = "/k3s/bin", conflist: str | None = "/k3s/net.d/00-railnet.conflist") -> CniRequest:
    environment = {b"CNI_COMMAND": b"DEL", b"CNI_CONTAINERID": b"c", b"CNI_IFNAME": b"eth0", b"CNI_PATH": path.encode()}
    named = {} if conflist is None else {"conflist": conflist}
    stdin = json.dumps({"cniVersion": "1.0.0", "name": "cbr0", "type": "railnet", "primary": "/p", **named}).encode()
    return CniRequest(Environment(environment), netconf.parse(stdin), None, SandboxPod("", "", ""))


class Leave:
    """Stands for `former_folders.leave`: returns the answers in their order, and then True."""

    def __init__(self, *answers: bool) -> None:
        self.answers, self.searched, self.disk = list(answers), list[frozenset[str]](), threading.Event()
        self.disk.set()

    def __call__(self, host: HostConfiguration, searched: Collection[str]) -> bool:
        assert self.disk.wait(20)
        self.searched.append(frozenset(searched))
        return self.answers.pop(0) if self.answers else True


@pytest.fixture
def leave(monkeypatch: pytest.MonkeyPatch) -> Leave:
    leave = Leave()
    monkeypatch.setattr(former_folders, "leave", leave)
    monkeypatch.setattr(cni_folders_in_use, "_AGAIN_SECONDS", 0.005)
    monkeypatch.setattr(cni_folders_in_use, "_SLOW_SECONDS", 0.05)
    return leave


def run(act: Callable[[CniFoldersInUse], Awaitable[None]]) -> None:
    async def inside() -> None:
        await asyncio.wait_for(act(CniFoldersInUse(HOST)), 20)

    asyncio.run(inside())


def test_former_folders_are_left_after_a_request_and_again_until_nothing_is_left(leave: Leave) -> None:
    leave.answers = [False, False]

    async def act(folders: CniFoldersInUse) -> None:
        folders.note(a_request("/usr/libexec/cni:/k3s/bin"))
        await folders.leave_former(lambda: True)

    run(act)

    assert leave.searched == [frozenset({"/usr/libexec/cni", "/k3s/bin"})] * 3


@pytest.mark.parametrize(
    "came",
    [[], [a_request("/opt/cni/bin", None)], [a_request(conflist="/etc/cni/net.d/00-railnet.conflist")]],
    ids=["no request", "former configuration", "configuration that the runtime remembers"],
)
def test_former_folders_stay_without_a_request_by_the_present_configuration(
    leave: Leave, came: list[CniRequest]
) -> None:
    async def act(folders: CniFoldersInUse) -> None:
        for request in came:
            folders.note(request)
        leaving = asyncio.create_task(folders.leave_former(lambda: True))
        await asyncio.sleep(0.05)
        before = list(leave.searched)
        folders.note(a_request())
        await leaving
        assert (before, leave.searched) == ([], [frozenset({"/k3s/bin"})])

    run(act)


def test_former_folders_stay_while_the_present_configuration_is_not_in_place(leave: Leave) -> None:
    active = [False]

    async def act(folders: CniFoldersInUse) -> None:
        folders.note(a_request())
        leaving = asyncio.create_task(folders.leave_former(lambda: active[0]))
        await asyncio.sleep(0.05)
        before = list(leave.searched)
        active[0] = True
        await leaving
        assert before == []

    run(act)


def test_disk_that_hangs_is_named_and_holds_neither_the_event_loop_nor_the_end(
    leave: Leave, caplog: pytest.LogCaptureFixture
) -> None:
    leave.disk.clear()

    async def act(folders: CniFoldersInUse) -> None:
        folders.note(a_request())
        leaving = asyncio.create_task(folders.leave_former(lambda: True))
        await until_async(lambda: "do not answer" in caplog.text, 20, "a warning")
        assert not leaving.done()
        leaving.cancel()
        await asyncio.wait({leaving})
        assert leaving.cancelled()

    with caplog.at_level(logging.WARNING):
        run(act)
    leave.disk.set()


def test_error_of_a_folder_is_the_tasks(leave: Leave, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(host: HostConfiguration, searched: Collection[str]) -> bool:
        raise PermissionError(13, "Permission denied", "/opt/cni/bin")

    monkeypatch.setattr(former_folders, "leave", refuse)

    async def act(folders: CniFoldersInUse) -> None:
        folders.note(a_request())
        with pytest.raises(PermissionError):
            await folders.leave_former(lambda: True)

    run(act)


def test_folders_that_are_remembered_are_limited(leave: Leave) -> None:
    async def act(folders: CniFoldersInUse) -> None:
        for number in range(100):
            folders.note(a_request(f"/bin-{number}"))
        await folders.leave_former(lambda: True)

    run(act)

    assert len(leave.searched[0]) == 32
