"""Kubelet's two files say which pod holds which VF; a process that hangs while kubelet is looked for costs few threads."""

import asyncio
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from railnet.configuration import Configuration, HostConfiguration
from railnet.daemon import allocated_vfs, kubelet_folder
from railnet.daemon.kubelet_folder import KubeletSearch

SEARCH = "search for kubelet"


def test_process_that_hangs_for_ever_costs_a_few_threads_however_often_pods_are_asked_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    answer = threading.Event()
    monkeypatch.setattr(kubelet_folder, "running_kubelet", lambda *_, **__: answer.wait(20) and None)
    host = replace(HostConfiguration(), root=tmp_path, device_plugins=tmp_path)
    configuration = replace(Configuration(), host=host)

    async def main() -> list[object]:
        kubelet = KubeletSearch(host, seconds=0.01)
        return [await allocated_vfs.pods(configuration, kubelet) for _ in range(20)]

    told = asyncio.run(main())
    threads = [thread for thread in threading.enumerate() if thread.name == SEARCH]
    answer.set()
    for thread in threads:
        thread.join(0.01)

    assert told == [None] * 20
    assert len(threads) <= 4
