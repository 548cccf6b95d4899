"""The launcher and real processes: places, ends, signals, and that nothing is left behind."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from horovod.runner.machines.cores import usable_cores

from .conftest import Horovodrun, alive, python, wait_for_end

SHOW = """
    import json, os
    seen = {n: v for n, v in os.environ.items() if "HOROVOD" in n or n in ("OMP_NUM_THREADS", "PYTHONUNBUFFERED")}
    seen["mode"] = os.stat(os.environ["HOROVOD_RENDEZVOUS_DIR"]).st_mode & 0o777
    seen["words"] = [open(f"/proc/{p}/cmdline").read() for p in ("self", os.getppid())]
    seen["group"] = os.getpgrp() == os.getpid()
    seen["stdin"] = os.read(0, 1).decode()
    print(json.dumps(seen))
"""

# Prints a line with pids, then waits for SIGINT, which is blocked before so that it cannot come too early.
WAIT = """
    import os, signal, subprocess, sys
    child = subprocess.Popen(["sleep", "1000"])
    daemon = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGINT])
    print(os.getppid(), os.getpid(), child.pid, daemon.pid, flush=True)
    signal.sigwait([signal.SIGINT])
    print("cleaned", flush=True)
    sys.exit(1)
"""

# The same, but SIGINT and SIGTERM do not end it.
STUBBORN = WAIT.replace("    sys.exit(1)", "    signal.sigwait([signal.SIGUSR1])").replace(
    "[signal.SIGINT])\n    print(os", "[signal.SIGINT, signal.SIGTERM, signal.SIGUSR1])\n    print(os"
)


def pids_of(process: subprocess.Popen[bytes], ranks: int) -> list[int]:
    """Reads the lines of WAIT: all ranks wait now."""
    assert process.stdout
    lines = [process.stdout.readline().partition(b":")[2] for _ in range(ranks)]
    return [int(word) for line in lines for word in line.split()]


def test_eight_ranks_know_their_places(horovodrun: Horovodrun) -> None:
    done = horovodrun.python("-np 8 --cycle-time-ms 2", SHOW)
    assert done.returncode == 0, done.stderr
    seen = [json.loads(line.partition(b":")[2]) for line in done.stdout.splitlines()]
    seen.sort(key=lambda each: int(each["HOROVOD_RANK"]))
    assert [each["HOROVOD_RANK"] for each in seen] == [str(rank) for rank in range(8)]
    assert [each["HOROVOD_LOCAL_RANK"] for each in seen] == [str(rank) for rank in range(8)]
    for each in seen:
        secret = each.pop("_HOROVOD_SECRET_KEY")
        assert len(bytes.fromhex(secret)) == 32
        assert not any(secret in words for words in each["words"])
        assert each["mode"] == 0o700
        assert each["group"]
        assert each["stdin"] == ""
        assert each["HOROVOD_RENDEZVOUS_DIR"].startswith(str(horovodrun.place))
        numbers = {name: each[f"HOROVOD_{name}"] for name in ("SIZE", "LOCAL_SIZE", "CROSS_RANK", "CROSS_SIZE")}
        assert numbers == {"SIZE": "8", "LOCAL_SIZE": "8", "CROSS_RANK": "0", "CROSS_SIZE": "1"}
        assert (each["HOROVOD_HOSTNAME"], each["HOROVOD_CONTROLLER"]) == ("localhost", "gloo")
        assert (each["HOROVOD_CYCLE_TIME"], each["PYTHONUNBUFFERED"]) == ("2", "1")
        assert each["OMP_NUM_THREADS"] == str(max(1, usable_cores() // 8))
    assert len({each["HOROVOD_RENDEZVOUS_DIR"] for each in seen}) == 1


def test_threads_that_the_user_chose_are_kept(horovodrun: Horovodrun) -> None:
    horovodrun.environ["OMP_NUM_THREADS"] = "7"
    done = horovodrun("-np 1", ["sh", "-c", "echo $OMP_NUM_THREADS"])
    assert done.stdout == b"[0]<stdout>:7\n"


def test_a_umask_that_takes_every_right_is_no_obstacle(horovodrun: Horovodrun) -> None:
    code = "import horovod.numpy as hvd; hvd.init(); print(hvd.size())"
    command = [sys.executable, "-c", code]
    done = horovodrun("-np 2", command, preexec_fn=lambda: os.umask(0o777))
    assert done.returncode == 0, done.stderr
    assert sorted(done.stdout.splitlines()) == [b"[0]<stdout>:2", b"[1]<stdout>:2"]


def test_names_of_this_machine_are_one_host(horovodrun: Horovodrun) -> None:
    done = horovodrun(
        "-np 2 -H localhost:1,127.0.0.1:1", ["sh", "-c", "echo $HOROVOD_LOCAL_RANK of $HOROVOD_LOCAL_SIZE"]
    )
    assert sorted(done.stdout.splitlines()) == [b"[0]<stdout>:0 of 2", b"[1]<stdout>:1 of 2"]


def test_the_exit_code_is_the_culprits_and_the_others_may_clean_up(horovodrun: Horovodrun, tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pid")
    code = f"""
        import os, select, sys
        if os.environ["HOROVOD_RANK"] == "1":
            open({str(tmp_path / "pid")!r}, "w").write(str(os.getpid()))
            print("my last words", file=sys.stderr, flush=True)
            os._exit(7)
        try:
            select.select([os.pidfd_open(int(open({str(tmp_path / "pid")!r}).read()))], [], [])
        except ProcessLookupError:
            pass  # it has ended already
        print("cleaned", flush=True)
        sys.exit(3)
    """
    done = horovodrun.python("-np 2", code)
    assert done.returncode == 7
    assert b"[0]<stdout>:cleaned\n" in done.stdout
    last = done.stderr.decode().splitlines()[-1:]
    assert last[0].startswith("horovodrun: rank 1 (localhost, pid ")
    assert " exited with code 7 after 0." in last[0]
    assert last[0].endswith("; the other rank failed too. The last lines of rank 1 are above.")


def test_a_crash_is_the_culprit_though_the_others_fail_at_the_same_moment(
    horovodrun: Horovodrun, tmp_path: Path
) -> None:
    for rank in (0, 1, 3):
        os.mkfifo(tmp_path / str(rank))
    code = f"""
        import os, signal, sys
        rank = int(os.environ["HOROVOD_RANK"])
        if rank == 2:
            lives = [open(f"{tmp_path}/{{other}}", "w") for other in (0, 1, 3)]
            os.kill(os.getpid(), signal.SIGSEGV)
        open(f"{tmp_path}/{{rank}}").read()
        os._exit(1)
    """
    done = horovodrun.python("-np 4", code)
    assert done.returncode == 139
    assert b"horovodrun: rank 2 (localhost, pid " in done.stderr
    assert b"was killed by signal 11 (SIGSEGV)" in done.stderr


def test_the_order_of_deaths_decides_even_when_they_are_seen_together(horovodrun: Horovodrun) -> None:
    process = horovodrun.start(["-np", "4"], python(WAIT))
    assert process.stdout
    lines = [process.stdout.readline() for _ in range(4)]
    pids = {int(line[1:2]): int(line.split()[1]) for line in lines}
    keeper = int(lines[0].partition(b":")[2].split()[0])
    os.kill(keeper, signal.SIGSTOP)
    for rank in (2, 0, 3, 1):
        os.kill(pids[rank], signal.SIGKILL)
        wait_for_end(pids[rank])
    os.kill(keeper, signal.SIGCONT)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 137
    assert f"horovodrun: rank 2 (localhost, pid {pids[2]}) was killed by signal 9".encode() in stderr


def test_ranks_that_do_not_stop_are_stopped(horovodrun: Horovodrun) -> None:
    # Rank 0 does not notice; it gets 2 s and then SIGTERM.
    done = horovodrun("-np 2", ["sh", "-c", "if [ $HOROVOD_RANK = 1 ]; then exit 5; fi; exec sleep 1000"])
    assert done.returncode == 5
    assert b"rank 1 (" in done.stderr and b"; the other rank was then stopped." in done.stderr


def test_a_stopped_rank_hears_that_it_shall_end(horovodrun: Horovodrun) -> None:
    began = time.monotonic()
    done = horovodrun("-np 2", ["sh", "-c", "if [ $HOROVOD_RANK = 1 ]; then sleep 0.3; exit 5; fi; kill -STOP $$"])
    assert done.returncode == 5
    assert time.monotonic() - began < 5.0, "SIGTERM after 2 s ends it; SIGKILL would come after 7 s"


def test_a_command_that_is_not_there(horovodrun: Horovodrun) -> None:
    done = horovodrun("-np 2", ["no-such-command"])
    assert done.returncode == 2
    assert done.stderr == b"horovodrun: error: The command 'no-such-command' is not found.\n"


def test_a_command_that_cannot_be_executed(horovodrun: Horovodrun, tmp_path: Path) -> None:
    program = tmp_path / "program"
    program.write_bytes(b"\x00garbage")
    program.chmod(0o755)
    done = horovodrun("-np 2", [str(program)])
    assert done.returncode == 126
    assert b"cannot be executed: Exec format error" in done.stderr


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (
            "#!/no/such/python -u\n",
            b"No such file or directory: its first line names '/no/such/python', which does not exist; "
            b"put the interpreter before the program.\n",
        ),
        (
            "#!/bin/sh\r\necho\r\n",
            b"No such file or directory: its first line, '#!/bin/sh\\r', ends with a carriage return; "
            b"store it with Unix line ends.\n",
        ),
    ],
)
def test_a_script_that_nothing_can_run(text: str, told: bytes, horovodrun: Horovodrun, tmp_path: Path) -> None:
    (tmp_path / "script").write_bytes(text.encode())
    (tmp_path / "script").chmod(0o755)
    done = horovodrun("-np 1", ["./script"], cwd=tmp_path)
    assert done.returncode == 126
    assert done.stderr == b"horovodrun: rank 0: './script' cannot be executed: " + told


def test_a_text_without_an_interpreter_is_run_by_the_shell(horovodrun: Horovodrun, tmp_path: Path) -> None:
    (tmp_path / "script").write_text("echo hello $1 of $HOROVOD_SIZE\n")
    (tmp_path / "script").chmod(0o755)
    done = horovodrun("-np 1", ["./script", "you"], cwd=tmp_path)
    assert (done.returncode, done.stdout) == (0, b"[0]<stdout>:hello you of 1\n")


@pytest.mark.parametrize(("number", "code"), [(signal.SIGINT, 130), (signal.SIGTERM, 143)])
def test_an_interrupted_launcher_leaves_nothing(horovodrun: Horovodrun, number: int, code: int) -> None:
    process = horovodrun.start(["-np", "3"], python(WAIT))
    pids = pids_of(process, 3)
    assert all(alive(pid) for pid in pids)
    process.send_signal(number)
    stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == code
    assert stdout.count(b"cleaned") == (3 if number == signal.SIGINT else 0)
    assert f"horovodrun: stopped by {signal.Signals(number).name}; no rank is left.".encode() in stderr
    assert [pid for pid in pids if alive(pid)] == []
    assert list(horovodrun.place.iterdir()) == []


def test_the_second_interrupt_kills(horovodrun: Horovodrun) -> None:
    process = horovodrun.start(["-np", "1"], python(STUBBORN))
    pids = pids_of(process, 1)
    process.send_signal(signal.SIGINT)
    assert process.stdout
    assert process.stdout.readline() == b"[0]<stdout>:cleaned\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=30)
    assert process.returncode == 130
    assert [pid for pid in pids if alive(pid)] == []


def test_a_killed_launcher_leaves_nothing(horovodrun: Horovodrun) -> None:
    process = horovodrun.start(["-np", "2"], python(WAIT))
    pids = pids_of(process, 2)
    assert len(pids) == 8
    assert list(horovodrun.place.iterdir()) != []
    process.kill()
    process.wait()
    for pid in pids:  # the first is the keeper's, which goes last
        wait_for_end(pid)
    assert [pid for pid in pids if alive(pid)] == []
    jobs = horovodrun.place / f"horovodrun-{os.getuid()}"  # may be gone itself
    assert not jobs.exists() or list(jobs.iterdir()) == []
    process.communicate()


def test_ranks_ignore_no_signal(horovodrun: Horovodrun) -> None:
    asked = ["grep", "SigIgn", "/proc/self/status"]
    # Whoever started this may ignore signals, as nohup does.
    ignored_anyway = int(subprocess.run(asked, stdout=subprocess.PIPE, check=True).stdout.split()[-1], 16)
    ignored = int(horovodrun("-np 1", asked).stdout.split()[-1], 16)
    assert ignored & ~ignored_anyway == 0, "an interpreter ignores some, which its children would inherit"


def test_a_killed_keeper_ends_the_job(horovodrun: Horovodrun) -> None:
    process = horovodrun.start(["-np", "2"], python(WAIT))
    pids = pids_of(process, 2)
    os.kill(pids[0], signal.SIGKILL)
    _, stderr = process.communicate(timeout=30)
    assert process.returncode == 1
    assert b"the process that keeps the ranks has died" in stderr
    assert list(horovodrun.place.iterdir()) == []
    assert [pid for pid in pids if alive(pid)] == [], "neither ranks, nor their children, nor what left their session"


def test_a_killed_keeper_does_not_take_along_what_the_launcher_had_before(horovodrun: Horovodrun) -> None:
    launcher = f"exec {sys.executable} -m horovod.runner -np 1 sh -c 'echo $PPID; sleep 60'"
    words = ["sh", "-c", f"(sleep 50 & sleep 60) & echo $!; {launcher}"]
    pipes = {"stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "env": horovodrun.environ}
    with subprocess.Popen(words, start_new_session=True, **pipes) as process:
        try:
            other, keeper = (int(process.stdout.readline().split(b":")[-1]) for _ in range(2))
            os.kill(keeper, signal.SIGKILL)
            assert process.wait(20) == 1
            assert alive(other)
        finally:
            os.killpg(process.pid, signal.SIGKILL)


def test_a_killed_keeper_takes_along_what_ended_ranks_have_left(horovodrun: Horovodrun) -> None:
    script = "if [ $HOROVOD_RANK = 0 ]; then sleep 60 & echo $! $PPID; exit; fi; sleep 60"
    process = horovodrun.start(["-np", "2"], ["sh", "-c", script])
    assert process.stdout is not None
    helper, keeper = map(int, process.stdout.readline().partition(b":")[2].split())
    os.kill(keeper, signal.SIGKILL)
    process.communicate(timeout=30)
    assert process.returncode == 1
    wait_for_end(helper)


def test_a_job_that_a_rank_has_started_cleans_up_too(horovodrun: Horovodrun) -> None:
    inner = f"exec {sys.executable} -m horovod.runner -np 1 sh -c 'echo up $$; sleep 60'"
    process = horovodrun.start(["-np", "1"], ["sh", "-c", inner])
    assert process.stdout is not None
    innermost = int(process.stdout.readline().split()[-1])
    process.kill()
    process.communicate(timeout=30)
    wait_for_end(innermost)
    deadline = time.monotonic() + 10
    while (left := list(horovodrun.place.rglob("*"))) and time.monotonic() < deadline:
        time.sleep(0.02)
    assert left == []


def test_ranks_die_even_when_launcher_and_keeper_are_killed(horovodrun: Horovodrun) -> None:
    process = horovodrun.start(["-np", "2"], python(WAIT))
    pids = pids_of(process, 2)
    keeper, ranks = pids[0], [pids[1], pids[5]]
    os.kill(keeper, signal.SIGSTOP)
    process.kill()
    process.wait()
    assert all(alive(rank) for rank in ranks)
    os.kill(keeper, signal.SIGKILL)
    for rank in ranks:
        wait_for_end(rank)
    for other in (pids[2], pids[3], pids[6], pids[7]):
        os.kill(other, signal.SIGKILL)
    # The directory stays, and the next launcher of this user sweeps it.
    home = horovodrun.place / f"horovodrun-{os.getuid()}"
    assert len(list(home.iterdir())) == 1
    assert horovodrun("-np 1", ["true"]).returncode == 0
    process.communicate()


def test_what_a_rank_abandons_ends_with_the_job(horovodrun: Horovodrun) -> None:
    code = """
        import subprocess
        print(subprocess.Popen(["sleep", "1000"], start_new_session=True).pid)
    """
    done = horovodrun.python("-np 2", code)
    assert done.returncode == 0
    pids = [int(line.partition(b":")[2]) for line in done.stdout.splitlines()]
    assert len(pids) == 2
    assert [pid for pid in pids if alive(pid)] == []


def test_ranks_that_never_come_up_are_named(horovodrun: Horovodrun) -> None:
    code = """
        import os, signal
        if os.environ["HOROVOD_RANK"] != "2":
            place = os.path.join(os.environ["HOROVOD_RENDEZVOUS_DIR"], "meeting")
            os.makedirs(place, exist_ok=True)
            open(os.path.join(place, "r" + os.environ["HOROVOD_RANK"]), "w").close()
        signal.pause()
    """
    done = horovodrun.python("-np 3 --start-timeout 0.5", code)
    assert done.returncode == 1
    assert b"2 of 3 ranks called hvd.init(), but rank 2 did not within 0.5 s." in done.stderr


def test_two_jobs_do_not_disturb_one_another(horovodrun: Horovodrun) -> None:
    first = horovodrun.start(["-np", "1"], python(WAIT))
    pids = pids_of(first, 1)
    second = horovodrun.start(["-np", "1"], ["true"])
    assert second.wait(timeout=30) == 0
    second.communicate()
    assert all(alive(pid) for pid in pids)
    assert len(list((horovodrun.place / f"horovodrun-{os.getuid()}").iterdir())) == 1
    first.send_signal(signal.SIGINT)
    first.communicate(timeout=30)
    assert list(horovodrun.place.iterdir()) == []


SHARES = """
import multiprocessing, multiprocessing.shared_memory, os, sys, time

def work(lock):
    time.sleep(1000)

if __name__ == "__main__":
    context = multiprocessing.get_context(sys.argv[1])
    lock = context.Lock()
    memory = multiprocessing.shared_memory.SharedMemory(create=True, size=4096)
    worker = context.Process(target=work, args=(lock,))
    worker.start()
    print(lock._semlock.name, memory.name, flush=True)
    os.kill(os.getppid() if sys.argv[2:] else os.getpid(), 9)
    time.sleep(1000)
"""


@pytest.mark.parametrize("method", ["spawn", "forkserver", "fork"])
def test_what_the_helpers_of_a_killed_rank_clean_up_is_cleaned_up(
    method: str, horovodrun: Horovodrun, tmp_path: Path
) -> None:
    """A worker holds the pipe that the resource tracker waits for: it must end before the tracker can do its work."""
    program = tmp_path / "rank.py"
    program.write_text(SHARES)
    done = horovodrun("-np 2", [sys.executable, str(program), method])
    assert done.returncode == 128 + 9
    assert kept(done.stdout) == []


def kept(stdout: bytes) -> list[str]:
    """What is left of the things whose names SHARES has printed."""
    names = [name for line in stdout.splitlines() for name in line.decode().partition(":")[2].split()]
    assert len(names) >= 2
    there = os.listdir("/dev/shm")
    return [name for name in names if name in there or f"sem.{name.strip('/')}" in there]


def test_a_killed_keeper_leaves_no_shared_memory(horovodrun: Horovodrun, tmp_path: Path) -> None:
    program = tmp_path / "rank.py"
    program.write_text(SHARES)
    done = horovodrun("-np 1", [sys.executable, str(program), "spawn", "the keeper"])
    assert b"the process that keeps the ranks has died" in done.stderr
    assert kept(done.stdout) == []
