"""Railnet's configuration on a host, kept true while other tools change what stands beside it."""

import asyncio
import json
import logging
import os
import threading
from collections.abc import Callable
from dataclasses import replace
from errno import ESTALE
from pathlib import Path
from typing import Any

import pytest

from railnet.configuration import Configuration, HostConfiguration, Timeouts
from railnet.daemon.conflist import conflist
from railnet.daemon.conflist import keeper as activation_module
from railnet.daemon.conflist.conflist import NAME
from railnet.daemon.conflist.keeper import ConflistKeeper
from railnet.kubelet.root_folder import KubeletFolder

FOLDER = str(HostConfiguration().cni_conf)
FLANNEL = {"cniVersion": "0.3.1", "name": "cbr0", "plugins": [{"type": "flannel"}]}


class Host:
    """A host's /etc/cni/net.d, and what is written there as Railnet's."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.folder = root / FOLDER.lstrip("/")
        self.folder.mkdir(parents=True)
        self.ours = self.folder / NAME

    def has(self, name: str, content: object = FLANNEL) -> Path:
        text = content if isinstance(content, str) else json.dumps(content)
        (self.folder / name).write_text(text)
        return self.folder / name

    def configuration(self, **changes: Any) -> Configuration:
        return replace(Configuration(host=replace(HostConfiguration(), root=self.root)), **changes)

    def activation(self, **changes: Any) -> ConflistKeeper:
        return ConflistKeeper(self.configuration(**changes))

    @property
    def written(self) -> dict[str, Any]:
        written: dict[str, Any] = json.loads(self.ours.read_bytes())
        return written

    @property
    def primary(self) -> str:
        return str(self.written["plugins"][0]["primary"])


@pytest.fixture
def host(tmp_path: Path) -> Host:
    return Host(tmp_path)


def state(activation: ConflistKeeper) -> tuple[bool, bool]:
    """Tell whether it is active, and whether it is without trouble."""
    return activation.why_inactive is None, activation.trouble is None


def test_conflist_is_inactive_until_it_is_written(host: Host) -> None:
    host.has("10-flannel.conflist")
    activation = host.activation()

    assert not host.ours.exists()
    assert state(activation)[0] is False


def test_conflist_sorts_before_the_primary(host: Host) -> None:
    host.has("10-flannel.conflist")
    activation = host.activation()

    activation.look()

    assert (host.primary, host.written["name"]) == (f"{FOLDER}/10-flannel.conflist", "cbr0")
    assert host.ours.stat().st_mode & 0o777 == 0o600
    assert state(activation) == (True, True)


def test_configured_primary_may_be_an_absolute_link_on_the_host(host: Host) -> None:
    (host.root / "elsewhere").write_text(json.dumps({**FLANNEL, "name": "other"}))
    (host.root / "link").symlink_to("/elsewhere")

    host.activation(primary="/link").look()

    assert host.written["name"] == "other"


@pytest.mark.parametrize("present", ["whole", "absent", "broken"])
def test_folder_of_kubelet_stays_in_the_conflist_until_this_daemon_has_found_kubelet(host: Host, present: str) -> None:
    host.has("10-flannel.conflist")
    found = KubeletFolder(Path("/var/lib/k0s/kubelet"), "a test")
    ConflistKeeper(host.configuration(), lambda: found).look()
    if present == "absent":
        host.ours.unlink()
    elif present == "broken":
        host.ours.write_text("{")

    known = list[KubeletFolder]()
    again = ConflistKeeper(host.configuration(), lambda: known[0] if known else None)
    again.look()
    before = host.written["plugins"][0].get("kubelet")
    known.append(found)
    again.look()

    assert before == ("/var/lib/k0s/kubelet" if present == "whole" else None)
    assert host.written["plugins"][0]["kubelet"] == "/var/lib/k0s/kubelet"


def test_keeper_waits_for_a_missing_primary(host: Host) -> None:
    activation = host.activation()
    activation.look()
    missing = activation.trouble

    host.has("10-flannel.conflist")
    activation.look()

    assert "install flannel" in missing
    assert state(activation) == (True, True)


@pytest.mark.parametrize("name", [f"{NAME}.bak", f"{NAME}.cilium_bak", ".hidden"])
def test_conflist_is_written_again_when_another_tool_has_moved_it(host: Host, name: str) -> None:
    host.has("10-flannel.conflist")
    activation = host.activation()
    activation.look()

    host.ours.rename(host.folder / name)
    activation.look()

    assert host.primary == f"{FOLDER}/10-flannel.conflist"


@pytest.mark.parametrize(
    "content", ["", "{}", '{"cniVersion": "0.3.1", "name": "x", "plugins": [{"type": "railnet"}]}']
)
def test_conflist_is_written_again_when_another_program_has_changed_it(host: Host, content: str) -> None:
    host.has("10-flannel.conflist")
    activation = host.activation()
    activation.look()

    host.ours.write_text(content)
    activation.look()

    assert host.written["name"] == "cbr0"


def test_unchanged_conflist_is_not_written_again(host: Host) -> None:
    host.has("10-flannel.conflist")
    activation = host.activation()
    activation.look()
    before = host.ours.stat()

    activation.look()

    assert host.ours.stat() == before


@pytest.mark.parametrize("content", ["", '{"cniVersion": "0.3', '{"cniVersion": "0.9", "name": "n", "type": "a"}'])
def test_conflist_stays_while_the_primary_is_broken_and_follows_when_it_is_repaired(host: Host, content: str) -> None:
    host.has("10-flannel.conflist")
    host.has("87-podman.conflist")
    activation = host.activation()
    activation.look()
    good = host.ours.read_bytes()

    host.has("10-flannel.conflist", content)
    activation.look()
    while_broken = (host.ours.read_bytes(), state(activation))
    host.has("10-flannel.conflist", {**FLANNEL, "cniVersion": "1.0.0"})
    activation.look()

    assert while_broken == (good, (True, False))
    assert (host.written["cniVersion"], state(activation)) == ("1.0.0", (True, True))


def test_conflist_stays_when_the_primary_is_gone(host: Host) -> None:
    primary = host.has("10-flannel.conflist")
    activation = host.activation()
    activation.look()
    good = host.ours.read_bytes()

    primary.unlink()
    activation.look()

    assert host.ours.read_bytes() == good
    assert state(activation) == (True, False)


def test_changed_node_configuration_is_written_at_the_next_start(host: Host) -> None:
    host.has("10-flannel.conflist")
    host.activation().look()

    host.activation(timeouts=Timeouts(daemon=2.0)).look()

    assert host.written["plugins"][0]["seconds"]["daemon"] == 2.0


def test_file_that_sorts_before_the_conflist_is_reported_and_left_alone(
    host: Host, caplog: pytest.LogCaptureFixture
) -> None:
    host.has("10-flannel.conflist")
    multus = host.has("00-multus.conf", {"cniVersion": "0.3.1", "name": "multus", "type": "multus"})
    activation = host.activation(primary=f"{FOLDER}/10-flannel.conflist")

    activation.look()

    assert multus.exists()
    assert "it takes 00-multus.conf" in activation.why_inactive
    assert "it takes 00-multus.conf" in caplog.text


def test_host_without_the_cni_folder_is_reported_as_trouble(tmp_path: Path) -> None:
    activation = ConflistKeeper(Configuration(host=replace(HostConfiguration(), root=tmp_path)))

    activation.look()

    assert "install flannel" in activation.trouble


def test_primary_path_with_a_nul_is_reported_as_trouble(host: Host) -> None:
    activation = host.activation(primary="/a\0b")

    activation.look()

    assert "NUL" in activation.trouble


def link_to(target: str) -> Callable[[Path], None]:
    return lambda path: path.symlink_to(target)


def large(path: Path) -> None:
    path.touch()
    os.truncate(path, 1 << 40)


FIRST = "00-a.conflist"
ODD_FILES = {
    "link with a long name": link_to("x" * 300),
    "link with a long target": link_to("/".join(["x" * 200] * 20)),
    "link to itself": link_to(FIRST),
    "link to nothing": link_to("nothing"),
    "link to its folder": link_to("."),
    "named pipe": os.mkfifo,
    "a terabyte": large,
}


@pytest.mark.parametrize("make", ODD_FILES.values(), ids=list(ODD_FILES))
@pytest.mark.parametrize("first", [FIRST, "05-a.conflist"])
def test_odd_file_beside_the_conflist_costs_nothing_but_itself(
    host: Host, first: str, make: Callable[[Path], None]
) -> None:
    """A runtime takes every name that is no folder's (libcni's ConfFiles), and fails if it cannot read the first one."""
    host.has("10-flannel.conflist")
    activation = host.activation()
    make(host.folder / first)

    activation.look()
    during = activation.why_inactive
    (host.folder / first).unlink()
    activation.look()

    assert (during is not None and f"it takes {first}" in during) == (first == FIRST)
    assert host.primary == f"{FOLDER}/10-flannel.conflist"
    assert state(activation) == (True, True)


def test_file_name_without_utf_8_is_shown_so_that_it_can_be_printed(host: Host) -> None:
    host.has("10-flannel.conflist")
    host.has(os.fsdecode(b"00-a\xff\n.conflist"))
    activation = host.activation()

    activation.look()

    assert r"it takes '00-a\udcff\n.conflist'" in (activation.why_inactive or "")
    assert host.primary == f"{FOLDER}/10-flannel.conflist"


@pytest.mark.parametrize(
    "make", [link_to(NAME), link_to("x" * 300), os.mkfifo, large], ids=["loop", "long", "pipe", "large"]
)
def test_odd_file_in_the_place_of_the_conflist_is_replaced(host: Host, make: Callable[[Path], None]) -> None:
    host.has("10-flannel.conflist")
    make(host.ours)
    activation = host.activation()

    activation.look()

    assert host.primary == f"{FOLDER}/10-flannel.conflist"
    assert state(activation) == (True, True)


def test_folder_in_the_place_of_the_conflist_is_trouble_until_it_is_removed(host: Host) -> None:
    host.has("10-flannel.conflist")
    host.ours.mkdir()
    activation = host.activation()

    activation.look()
    during = activation.trouble
    host.ours.rmdir()
    activation.look()

    assert "00-railnet.conflist: it is a folder; remove it" in (during or "")
    assert state(activation) == (True, True)


def test_conflist_stays_and_counts_as_before_while_the_folder_cannot_be_read(
    host: Host, monkeypatch: pytest.MonkeyPatch
) -> None:
    host.has("10-flannel.conflist")
    activation = host.activation()
    activation.look()
    good = host.ours.read_bytes()

    def refuse(_: Path) -> None:
        raise OSError(ESTALE, os.strerror(ESTALE))

    with monkeypatch.context() as patched:
        patched.setattr(conflist.os, "scandir", refuse)
        activation.look()
        during = activation.trouble, activation.why_inactive
    activation.look()

    assert during == (
        f"{FOLDER}: Stale file handle; Railnet's configuration stays as it is, and it is tried again every second",
        None,
    )
    assert (host.ours.read_bytes(), state(activation)) == (good, (True, True))


def test_folder_that_does_not_answer_is_said(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.has("10-flannel.conflist")
    monkeypatch.setattr(activation_module, "_SLOW_SECONDS", 0.05)
    activation = host.activation()
    goes_on = threading.Event()
    monkeypatch.setattr(activation, "look", lambda: goes_on.wait(10))

    async def scenario() -> None:
        serving = asyncio.create_task(activation.serve(lambda: None))
        await until(lambda: activation.trouble is not None)
        goes_on.set()
        serving.cancel()

    asyncio.run(scenario())

    assert "does not answer" in (activation.trouble or "")


def test_trouble_is_logged_at_its_begin_every_few_seconds_and_at_its_end(
    host: Host, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    times = iter((100.0, 101.0, 102.0, 105.5, 106.0, 106.5, 107.0))
    monkeypatch.setattr(activation_module.time, "monotonic", lambda: next(times))
    activation = host.activation()
    for _ in range(5):
        activation.look()
    host.has("10-flannel.conflist")
    activation.look()
    activation.look()

    said = [record.message.partition(":")[0] for record in caplog.records]
    assert said == [
        *[f"{FOLDER} has no CNI configuration but Railnet's"] * 2,
        f"{FOLDER}/{NAME} was absent and is written",
        "the container runtime uses Railnet's configuration",
    ]


def test_observer_is_called_when_the_activity_changes(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(activation_module, "_LOOK_SECONDS", 0.01)
    host.has("10-flannel.conflist")
    activation = host.activation()
    seen: list[str | None] = []

    async def scenario() -> None:
        serving = asyncio.create_task(activation.serve(lambda: seen.append(activation.why_inactive)))
        await until(lambda: len(seen) == 1)
        earlier = host.has("00-a.conf", {"type": "a"})
        await until(lambda: len(seen) == 2)
        earlier.unlink()
        await until(lambda: len(seen) == 3)
        serving.cancel()

    asyncio.run(scenario())

    assert [reason is None for reason in seen] == [True, False, True]


def test_nothing_is_written_after_the_end(host: Host, monkeypatch: pytest.MonkeyPatch) -> None:
    host.has("10-flannel.conflist")
    activation = host.activation()
    begun, may_go_on = threading.Event(), threading.Event()

    def slow_disk(path: Path, content: bytes, *, durable: bool) -> None:
        begun.set()
        may_go_on.wait(10)
        path.write_bytes(content)

    monkeypatch.setattr(activation_module, "write_atomically", slow_disk)

    async def scenario() -> bool:
        serving = asyncio.create_task(activation.serve(lambda: None))
        await asyncio.to_thread(begun.wait, 10)
        serving.cancel()
        asyncio.get_running_loop().call_later(0.05, may_go_on.set)
        with pytest.raises(asyncio.CancelledError):
            await serving
        return host.ours.exists()

    assert asyncio.run(scenario())


# Plugins of other programs.


ISTIO = {"type": "istio-cni", "name": "istio-cni", "plugin_log_level": "info"}


class Appender:
    """An installer that appends a plugin as Istio's does: sorted keys, another indent (istio/istio, cni/pkg/install/cniconfig.go)."""

    def __init__(self, plugin: dict[str, Any]) -> None:
        self._plugin = plugin

    def append(self, path: Path) -> None:
        conf = self._without(path)
        self._write(path, {**conf, "plugins": [*conf["plugins"], self._plugin]})

    def take_out(self, path: Path) -> None:
        self._write(path, self._without(path))

    def _without(self, path: Path) -> dict[str, Any]:
        conf: dict[str, Any] = json.loads(path.read_bytes())
        return {**conf, "plugins": [each for each in conf["plugins"] if each["type"] != self._plugin["type"]]}

    def _write(self, path: Path, conf: dict[str, Any]) -> None:
        path.with_name(".new").write_text(json.dumps(conf, indent=1, sort_keys=True))
        path.with_name(".new").rename(path)


def plugins(path: Path) -> list[str]:
    return [plugin["type"] for plugin in json.loads(path.read_bytes())["plugins"]]


@pytest.fixture
def served(host: Host) -> ConflistKeeper:
    host.has("10-flannel.conflist")
    keeper = host.activation()
    keeper.look()
    return keeper


def test_appended_plugin_stays_and_the_file_settles_within_one_write(host: Host, served: ConflistKeeper) -> None:
    Appender(ISTIO).append(host.ours)
    served.look()
    written = host.ours.stat().st_ino

    served.look()

    assert plugins(host.ours) == ["railnet", "istio-cni"]
    assert host.ours.stat().st_ino == written


@pytest.mark.parametrize("versions", [None, ["0.3.1", "0.4.0"]])
def test_plugin_of_another_program_gets_a_version_of_the_primarys(host: Host, versions: list[str] | None) -> None:
    """Plugins that were built before CNI 1.1 refuse its version, which Railnet's conflist lists for Railnet."""
    host.has("10-flannel.conflist", {**FLANNEL, **({"cniVersions": versions} if versions else {})})
    keeper = host.activation()
    keeper.look()
    alone = host.written["cniVersions"]

    Appender(ISTIO).append(host.ours)
    keeper.look()

    assert alone == ["1.0.0", "1.1.0"]
    assert (host.written["cniVersion"], host.written.get("cniVersions")) == ("0.3.1", versions)


def test_appended_plugin_stays_while_the_daemon_starts_again(host: Host, served: ConflistKeeper) -> None:
    Appender(ISTIO).append(host.ours)
    served.look()

    host.activation(timeouts=Timeouts(daemon=2.0)).look()

    assert plugins(host.ours) == ["railnet", "istio-cni"]
    assert host.written["plugins"][0]["seconds"]["daemon"] == 2.0


def test_appended_plugin_goes_when_its_installer_takes_it_out(host: Host, served: ConflistKeeper) -> None:
    Appender(ISTIO).append(host.ours)
    served.look()
    Appender(ISTIO).take_out(host.ours)

    served.look()

    assert plugins(host.ours) == ["railnet"]
    assert host.written["cniVersions"] == ["1.0.0", "1.1.0"]


def test_installer_that_writes_both_files_has_its_plugin_run_once(host: Host, served: ConflistKeeper) -> None:
    for name in (NAME, "10-flannel.conflist"):
        Appender({"type": "mesh"}).append(host.folder / name)

    served.look()

    assert plugins(host.ours) == ["railnet", "mesh"]
    assert host.written["plugins"][0]["omit"] == ["mesh"]


@pytest.mark.parametrize("moved", [True, False], ids=["moved away", "emptied"])
def test_appended_plugins_come_back_with_the_conflist(host: Host, served: ConflistKeeper, moved: bool) -> None:
    Appender(ISTIO).append(host.ours)
    served.look()
    if moved:
        host.ours.rename(host.folder / f"{NAME}.cilium_bak")
    else:
        host.ours.write_bytes(b"")

    served.look()

    assert plugins(host.ours) == ["railnet", "istio-cni"]


def test_conflist_that_is_half_written_is_awaited(
    host: Host, served: ConflistKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    Appender(ISTIO).append(host.ours)
    served.look()
    Appender(ISTIO).take_out(host.ours)
    whole = host.ours.read_bytes()
    host.ours.write_bytes(whole[:20])
    monkeypatch.setattr(activation_module.time, "sleep", lambda _: host.ours.write_bytes(whole))

    served.look()

    assert plugins(host.ours) == ["railnet"]


def test_conflist_that_changes_while_it_is_compared_is_left_to_the_next_look(
    host: Host, served: ConflistKeeper, monkeypatch: pytest.MonkeyPatch
) -> None:
    compose, host_primary = conflist.compose, host.folder / "10-flannel.conflist"
    host.has(host_primary.name, {**FLANNEL, "cniVersion": "0.4.0"})

    def composed_while_a_program_writes(*arguments: Any) -> bytes:
        Appender(ISTIO).append(host.ours)
        return compose(*arguments)

    with monkeypatch.context() as patched:
        patched.setattr(conflist, "compose", composed_while_a_program_writes)
        served.look()
    during = plugins(host.ours)
    served.look()

    assert during == plugins(host.ours) == ["railnet", "istio-cni"]
    assert host.written["cniVersion"] == "0.4.0"


def test_file_of_istios_own_that_copies_the_conflist_gives_its_plugin(host: Host, served: ConflistKeeper) -> None:
    """With istioOwnedCNIConfig the mesh's plugin stands in a copy of the first conflist, which sorts after Railnet's."""
    owned = host.folder / "02-istio-cni.conflist"
    owned.write_bytes(host.ours.read_bytes())
    Appender(ISTIO).append(owned)
    served.look()
    with_file = plugins(host.ours)
    owned.unlink()

    served.look()

    assert (with_file, plugins(host.ours)) == (["railnet", "istio-cni"], ["railnet"])
    assert host.primary == f"{FOLDER}/10-flannel.conflist"


def test_file_of_istios_own_that_copies_the_primarys_is_not_the_primary(host: Host) -> None:
    """Istio's own file is a copy of flannel's if Istio was first, and of Railnet's when Istio starts again."""
    host.has("10-flannel.conflist")
    host.has("02-istio-cni.conflist", {**FLANNEL, "plugins": [*FLANNEL["plugins"], ISTIO]})
    keeper = host.activation()
    keeper.look()
    first = host.primary, plugins(host.ours)
    (host.folder / "02-istio-cni.conflist").write_bytes(host.ours.read_bytes())
    Appender(ISTIO).append(host.folder / "02-istio-cni.conflist")

    keeper.look()

    assert first == (f"{FOLDER}/10-flannel.conflist", ["railnet", "istio-cni"])
    assert (host.primary, plugins(host.ours)) == (f"{FOLDER}/10-flannel.conflist", ["railnet", "istio-cni"])


def test_primary_that_another_program_makes_a_copy_of_railnets_conflist_is_left(host: Host) -> None:
    host.has("05-other.conflist", {**FLANNEL, "plugins": [{"type": "bridge"}]})
    host.has("10-flannel.conflist")
    keeper = host.activation()
    keeper.look()
    first = host.primary
    (host.folder / "05-other.conflist").write_bytes(host.ours.read_bytes())

    keeper.look()

    assert (first, host.primary) == (f"{FOLDER}/05-other.conflist", f"{FOLDER}/10-flannel.conflist")


def test_copy_of_the_conflist_that_sorts_first_calls_railnet_too(host: Host, served: ConflistKeeper) -> None:
    first = host.folder / "00-istio-cni.conflist"
    first.write_bytes(host.ours.read_bytes())
    Appender(ISTIO).append(first)
    served.look()
    as_now = served.why_inactive
    newer = host.activation(timeouts=Timeouts(daemon=2.0))

    newer.look()

    assert as_now is None
    assert "it takes 00-istio-cni.conflist" in (newer.why_inactive or "")


def test_program_that_changes_the_file_again_and_again_is_warned_of_once(
    host: Host, served: ConflistKeeper, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    caplog.set_level(logging.INFO)
    now = 100.0
    monkeypatch.setattr(activation_module.time, "monotonic", lambda: now)
    for _ in range(20):
        now += 1
        host.ours.rename(host.folder / f"{NAME}.cilium_bak")
        served.look()
    during = served.rewrites
    now += 61
    served.look()

    assert during is not None
    assert [record.message for record in caplog.records if record.levelno >= logging.WARNING] == [during]
    assert len([record for record in caplog.records if "is written" in record.message]) < 6
    assert (served.rewrites, "left alone" in caplog.messages[-1]) == (None, True)


def test_installer_that_comes_and_one_that_starts_again_are_no_trouble(host: Host, served: ConflistKeeper) -> None:
    for plugin in (ISTIO, {"type": "linkerd-cni"}, ISTIO):
        Appender(plugin).append(host.ours)
        served.look()

    assert served.rewrites is None
    assert plugins(host.ours) == ["railnet", "linkerd-cni", "istio-cni"]


def test_plugin_that_installers_append_to_the_primary_is_there_before_its_installer(host: Host) -> None:
    host.has("10-flannel.conflist", {**FLANNEL, "plugins": [*FLANNEL["plugins"], ISTIO]})
    keeper = host.activation()

    keeper.look()
    first = plugins(host.ours), host.written["plugins"][0]["omit"]
    Appender(ISTIO).append(host.ours)
    before = host.ours.stat().st_ino
    keeper.look()

    assert first == (["railnet", "istio-cni"], ["istio-cni"])
    assert host.ours.stat().st_ino == before


def test_plugins_of_the_networks_folder_have_their_capabilities(host: Host) -> None:
    host.has("10-flannel.conflist")
    (host.folder / "cbr0").mkdir()
    (host.folder / "cbr0/50-bandwidth.conf").write_text('{"type": "bandwidth", "capabilities": {"bandwidth": true}}')
    keeper = host.activation()

    keeper.look()

    assert host.written["plugins"][0]["capabilities"]["bandwidth"] is True


def test_broken_plugin_of_the_networks_folder_is_trouble(host: Host) -> None:
    host.has("10-flannel.conflist")
    (host.folder / "cbr0").mkdir()
    (host.folder / "cbr0/50-bandwidth.conf").write_text("{")
    keeper = host.activation()

    keeper.look()

    assert "cbr0/50-bandwidth.conf is not JSON" in (keeper.trouble or "")


@pytest.mark.parametrize("settings", [{"clusterNetwork": FOLDER}, {"clusterNetwork": f"{FOLDER}/{NAME}"}], ids=repr)
def test_configured_primary_that_leads_back_is_trouble_and_is_not_written(host: Host, settings: dict[str, str]) -> None:
    host.has("20-multus.conf", {"cniVersion": "0.3.1", "name": "m", "type": "multus", **settings})
    keeper = host.activation(primary=f"{FOLDER}/20-multus.conf")

    keeper.look()

    assert "20-multus.conf is Multus" in (keeper.trouble or "")
    assert not host.ours.exists()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(10):
        while not condition():  # noqa: ASYNC110 - no event reports a file
            await asyncio.sleep(0.005)


def test_file_of_the_networks_folder_that_cannot_be_read_is_the_one_that_is_named(host: Host) -> None:
    host.has("10-flannel.conflist")
    (host.folder / "cbr0").mkdir()
    (host.folder / "cbr0/10-tuning.conf").symlink_to("/absent")
    keeper = host.activation()

    keeper.look()

    assert f"{FOLDER}/cbr0/10-tuning.conf cannot be read: No such file or directory" in str(keeper.trouble)
