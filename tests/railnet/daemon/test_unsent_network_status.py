"""A daemon sends the network-status of pods again whose ADD the daemon before it may have answered without telling the API server."""

import asyncio
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from cni import libcni_cache
from cni.rail_observers import RailsAttached
from railnet.daemon import unsent_network_status
from railnet.daemon.unsent_network_status import YOUNG_SECONDS, attached_lately, send_again
from railnet.kernel.foreign_state_files import Entry
from railnet.vf.record import Record, SandboxPod
from tests.railnet.vf.builders import a_record, an_attachment

NOW = 10_000.0
RECORD = a_record(an_attachment(), primary={"conf": {"name": "cbr0"}, "runtimeConfig": {}}, stage="attached")
STATIC = {"io.kubernetes.cri.pod-annotations": {"kubernetes.io/config.source": "file"}}


def a_file(record: Record = RECORD, modified: float = NOW - 1, **other: Any) -> Entry:
    """Return what libcni remembers of a record's ADD."""
    namespace, name, uid = record.pod
    arguments = [["K8S_POD_NAMESPACE", namespace], ["K8S_POD_NAME", name], ["K8S_POD_UID", uid]]
    document = {
        "kind": "cniCacheV1",
        "containerId": record.container_id,
        "ifName": record.ifname,
        "networkName": "cbr0",
        "cniArgs": arguments,
        "result": {"ips": [{"address": "10.244.0.9/24"}]},
        **other,
    }
    return Entry(f"cbr0-{record.container_id}-{record.ifname}", json.dumps(document).encode(), modified)


def test_add_that_was_answered_lately_is_told_again_with_its_result() -> None:
    (told,) = attached_lately([RECORD], [a_file()], NOW)

    assert (told.record, told.static) == (RECORD, False)
    assert json.loads(told.result) == {"ips": [{"address": "10.244.0.9/24"}]}


def test_static_pod_is_known_by_its_annotation() -> None:
    (told,) = attached_lately([RECORD], [a_file(capabilityArgs=STATIC)], NOW)

    assert told.static


@pytest.mark.parametrize(
    ("record", "file"),
    [
        (RECORD, a_file(modified=NOW - YOUNG_SECONDS - 1)),
        (replace(RECORD, stage="planned"), a_file()),
        (replace(RECORD, stage="detaching"), a_file()),
        (replace(RECORD, pod=SandboxPod("ml", "other", "uid-9")), a_file()),
        (RECORD, a_file(networkName="another")),
        (RECORD, a_file(replace(RECORD, container_id="feed"))),
        (RECORD, a_file(capabilityArgs={"io.kubernetes.cri.pod-annotations": 5})),
        (RECORD, Entry("cbr0-c0ffee-eth0", b"{", NOW)),
    ],
    ids=["old", "planned", "detaching", "another pod", "another network", "another sandbox", "odd annotations", "cut"],
)
def test_what_is_not_surely_such_an_add_is_not_told(record: Record, file: Entry) -> None:
    assert attached_lately([record], [file], NOW) == []


def test_newest_add_of_a_pod_is_told_last() -> None:
    newer = replace(RECORD, container_id="feed")

    told = attached_lately([newer, RECORD], [a_file(newer, NOW - 1), a_file(RECORD, NOW - 5)], NOW)

    assert [one.record.container_id for one in told] == [RECORD.container_id, "feed"]


def test_runtimes_cache_is_read_on_the_host(tmp_path: Path) -> None:
    folder = tmp_path / libcni_cache.FOLDER.lstrip("/")
    folder.mkdir(parents=True)
    file = a_file()
    (folder / file.name).write_bytes(file.content)
    told: list[object] = []

    asyncio.run(send_again(tmp_path, [RECORD], told.append))

    assert [type(one) for one in told] == [RailsAttached]


def test_stale_files_of_the_cache_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    asked = list[float]()
    monkeypatch.setattr(
        unsent_network_status, "entries", lambda root, folder, modified_since: asked.append(modified_since) or ()
    )
    monkeypatch.setattr(unsent_network_status.time, "time", lambda: NOW)

    asyncio.run(send_again(tmp_path, [RECORD], lambda _: None))

    assert asked == [NOW - YOUNG_SECONDS]


def test_cache_that_cannot_be_read_keeps_no_daemon_from_serving(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    folder = tmp_path / libcni_cache.FOLDER.lstrip("/")
    folder.parent.mkdir(parents=True)
    folder.symlink_to(folder.name)
    told: list[object] = []

    asyncio.run(send_again(tmp_path, [RECORD], told.append))

    assert told == []
    assert "are lost" in caplog.text
