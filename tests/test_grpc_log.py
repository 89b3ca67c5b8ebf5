"""What gRPC logs of a server that is freed is kept by no test: the process ends when such a record is freed."""

import asyncio
import gc
import logging

import grpc.aio
import pytest


@pytest.mark.slow
def test_server_that_is_never_started_is_in_no_record(caplog: pytest.LogCaptureFixture) -> None:
    async def make() -> None:
        grpc.aio.server()

    caplog.set_level(logging.DEBUG)
    asyncio.run(make())
    gc.collect()

    assert [record.name for record in caplog.records if record.name.startswith("grpc")] == []
