"""A program that stands for the daemon, started by the supervisor: it does what its first argument says, under the real heartbeat."""

import argparse
import asyncio
import os
import signal
import sys
import threading
from pathlib import Path

from railnet.daemon.process import heartbeat


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("act")
    parser.add_argument("folder", type=Path)
    parser.add_argument("beats", type=int)
    parser.add_argument("restarts", type=int)
    arguments = parser.parse_args()
    with (arguments.folder / "starts").open("a") as file:
        file.write(f"{os.getpid()} {arguments.restarts}\n")
    if arguments.act == "exit":
        sys.exit(7)
    if arguments.act == "die at start":
        os.kill(os.getpid(), signal.SIGSEGV)
    if arguments.act == "silent at start":
        threading.Event().wait()
    heartbeat.run(serve(arguments.act, arguments.folder, first=arguments.restarts == 0), arguments.beats)
    sys.exit(5)


async def serve(act: str, folder: Path, *, first: bool) -> None:
    ended = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        asyncio.get_running_loop().add_signal_handler(number, ended.set)
    (folder / "serves").write_text(str(os.getpid()))
    if first:
        await asyncio.sleep(0.2)  # until the first beat
        misbehave(act, folder)
    await ended.wait()


def misbehave(act: str, folder: Path) -> None:
    match act:
        case "spin":
            threading.Thread(target=spin, daemon=True).start()
        case "read a FIFO":
            (folder / "fifo").read_bytes()  # until a process writes
        case "sleep":
            threading.Event().wait()
        case "stop":
            os.kill(os.getpid(), signal.SIGSTOP)


def spin() -> None:
    sys.setswitchinterval(1e9)  # the thread keeps the GIL, as a C function does
    sum(1 for _ in iter(int, 1))


if __name__ == "__main__":
    main()
