import os
import signal
import subprocess
import sys
import time

EXEC = [sys.executable, "-m", "simnode", "exec", "--"]


def run(*command):
    return subprocess.run([*EXEC, *command], capture_output=True, text=True, check=False)


def test_exit_status_passes_through():
    assert run("sh", "-c", "exit 7").returncode == 7


def test_death_by_a_signal_is_told_as_a_shell_does():
    assert run("sh", "-c", "kill -KILL $$").returncode == 128 + signal.SIGKILL


def test_unknown_command_is_127():
    assert run("no-such-command").returncode == 127


def test_usage_is_told_for_wrong_arguments():
    done = subprocess.run([*EXEC[:-1], "true"], capture_output=True, text=True, check=False)

    assert done.returncode == 2
    assert done.stderr.startswith("usage: ")


def test_what_the_command_leaves_running_is_killed():
    done = run("sh", "-c", "sleep 300 & echo started")

    assert done.stdout == "started\n"


def test_signal_is_forwarded():
    outer = subprocess.Popen(
        [*EXEC, "sh", "-c", "trap 'exit 9' TERM; echo ready; while :; do sleep 0.05; done"], stdout=-1
    )
    outer.stdout.readline()
    outer.send_signal(signal.SIGTERM)

    assert outer.wait(10) == 9
    outer.stdout.close()


def test_killing_it_takes_the_whole_node_down():
    read_fd, write_fd = os.pipe()
    outer = subprocess.Popen([*EXEC, "sh", "-c", "echo ready; sleep 300"], stdout=write_fd)
    os.close(write_fd)
    os.read(read_fd, 100)
    outer.kill()
    outer.wait()
    started = time.monotonic()
    ended = os.read(read_fd, 1)  # end of file: nobody of the node is alive to hold the pipe
    os.close(read_fd)

    assert ended == b""
    assert time.monotonic() - started < 10
