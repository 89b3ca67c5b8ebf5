import os
import signal
import subprocess
import sys
import time

EXEC = [sys.executable, "-m", "simnode", "exec", "--"]


def run(*command):
    return subprocess.run([*EXEC, *command], capture_output=True, text=True, check=False)


def test_exec_returns_the_exit_status_of_the_command():
    assert run("sh", "-c", "exit 7").returncode == 7


def test_exec_returns_128_plus_the_signal_that_killed_the_command():
    assert run("sh", "-c", "kill -KILL $$").returncode == 128 + signal.SIGKILL


def test_exec_returns_127_for_an_unknown_command():
    assert run("no-such-command").returncode == 127


def test_exec_prints_its_usage_for_wrong_arguments():
    done = subprocess.run([*EXEC[:-1], "true"], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")


def test_exec_kills_all_processes_that_the_command_left_running():
    done = run("sh", "-c", "sleep 300 & echo started")

    assert done.stdout == "started\n"


def test_exec_forwards_a_signal_to_the_command():
    outer = subprocess.Popen(
        [*EXEC, "sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"], stdout=-1
    )
    outer.stdout.readline()
    outer.send_signal(signal.SIGTERM)

    assert outer.wait(60) == 9
    outer.stdout.close()


def test_kill_of_exec_kills_all_processes_of_the_node():
    read_fd, write_fd = os.pipe()
    outer = subprocess.Popen([*EXEC, "sh", "-c", "echo ready; sleep 300"], stdout=write_fd)
    os.close(write_fd)
    os.read(read_fd, 100)
    outer.kill()
    outer.wait()
    started = time.monotonic()
    ended = os.read(read_fd, 1)  # end of file: no process of the node has the pipe any more
    os.close(read_fd)

    assert ended == b""
    assert time.monotonic() - started < 10
