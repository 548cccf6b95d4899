"""The launcher where the machine is short of something: disk, memory file systems, processes, descriptors, readers."""

from __future__ import annotations

import fcntl
import os
import signal
import subprocess
import sys
import textwrap
from collections.abc import Iterator
from pathlib import Path

import pytest

from .conftest import ROOT, Horovodrun, python, wait_for_end

NOBODY = 65534
as_root = pytest.mark.skipif(
    os.getuid() != 0, reason="Not here: only root can mount file systems and become another user."
)

# These tests cover /tmp with something else.
beside_tmp = pytest.mark.skipif(ROOT.is_relative_to("/tmp"), reason="Not here: this checkout lies below /tmp.")

# Prints much, then waits for ever.
CHATTER = """
    import os, time
    os.write(1, b"x" * 99 + b"\\n" + b"y" * (1 << 21))
    time.sleep(1000)
"""


@pytest.fixture
def full_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system that takes 64 KiB."""
    place = tmp_path / "disk"
    place.mkdir()
    if subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "none", str(place)], check=False).returncode:
        pytest.skip("Not here: this machine lets nobody mount a file system.")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def in_shell(horovodrun: Horovodrun, script: str, *words: str) -> subprocess.CompletedProcess[bytes]:
    """Runs a shell with the launcher's variables; `"$@"` are the words."""
    command = ["sh", "-c", script, "sh", *words]
    return subprocess.run(command, env=horovodrun.environ, capture_output=True, timeout=60, check=False)


def launch(ranks: int, code: str) -> list[str]:
    return [sys.executable, "-m", "horovod.runner", "-np", str(ranks), *python(code)]


@as_root
def test_a_full_disk_under_the_output_files_is_said_once(horovodrun: Horovodrun, full_disk: Path) -> None:
    code = "import os\nfor _ in range(99): os.write(1, b'x' * 1999 + b'\\n')"
    done = horovodrun.python(f"-np 2 --output-filename {full_disk}/out", code)
    assert done.returncode == 0
    assert done.stdout.count(b"x" * 1999) == 198, "the launcher's own output is whole"
    warnings = [line for line in done.stderr.splitlines() if b": warning: " in line]
    assert len(warnings) == 1
    assert warnings[0].startswith(f"horovodrun: warning: {full_disk}/out/rank.".encode())
    assert b"cannot be written: No space left on device" in warnings[0]
    # As much as there was room for is there: a short write is continued until the error comes.
    assert sum(file.stat().st_size for file in full_disk.glob("out/rank.?/stdout")) == 1 << 16


def test_output_lost_on_a_full_disk_is_said_once(horovodrun: Horovodrun) -> None:
    code = "for i in range(5): print(i, flush=True)"
    with open("/dev/full", "wb") as full:
        done = horovodrun.python("-np 2", code, stdout=full)
    assert done.returncode == 0
    assert [line for line in done.stderr.splitlines() if b": warning: " in line] == [
        b"horovodrun: warning: standard output cannot be written: No space left on device. Output is lost; the job "
        b"goes on."
    ]
    with open("/dev/full", "wb") as full:
        done = horovodrun.python("-np 1", "import sys; print('out'); print('err', file=sys.stderr)", stderr=full)
    assert b"[0]<stdout>:out" in done.stdout
    assert done.stdout.count(b"standard error cannot be written") == 1


@beside_tmp
@as_root
def test_functions_and_results_larger_than_every_file_system(full_disk: Path) -> None:
    script = f"""
        import sys
        sys.path.insert(0, {str(ROOT / "python")!r})
        import horovod, os, subprocess
        for place in ("/dev/shm", "/tmp"):
            subprocess.run(["mount", "-t", "tmpfs", "-o", "size=1m", "none", place], check=True)
        big = bytes(3 << 20)
        def work():
            return os.environ["HOROVOD_RANK"], big + b"x" * (3 << 20)
        results = horovod.run(work, num_proc=2)
        assert [(rank, len(data)) for rank, data in results] == [("0", 6 << 20), ("1", 6 << 20)]
        assert os.listdir("/dev/shm") == os.listdir("/tmp") == []
    """
    environ = {name: value for name, value in os.environ.items() if not name.startswith(("HOROVOD", "XDG"))}
    # A file of its own: pickle finds the module's names in the ranks by value.
    words = ["unshare", "--mount", sys.executable, "-c", textwrap.dedent(script)]
    done = subprocess.run(words, env=environ, capture_output=True, timeout=60, check=False, text=True)
    assert done.returncode == 0, done.stderr


@beside_tmp
@as_root
def test_read_only_temporary_and_working_directories(horovodrun: Horovodrun) -> None:
    del horovodrun.environ["XDG_RUNTIME_DIR"]
    script = """
        for place in /tmp /var/tmp /usr/tmp; do mount -t tmpfs -o ro none $place 2>/dev/null; done
        mount -t tmpfs none /dev/shm && mount -t tmpfs -o ro none /mnt && cd /mnt && "$@" && ls /dev/shm
    """
    done = in_shell(horovodrun, f"exec unshare --mount sh -c '{script}' sh \"$@\"", *launch(1, "print(7)"))
    assert (done.returncode, done.stdout) == (0, b"[0]<stdout>:7\n"), done.stderr


@as_root
def test_without_proc_the_launcher_says_so_and_leaves_nothing(horovodrun: Horovodrun) -> None:
    script = 'exec unshare --mount sh -c \'umount -l /proc && exec "$@"\' sh "$@"'
    done = in_shell(horovodrun, script, *launch(1, "print(7)"))
    assert done.returncode != 0
    assert b"/proc is not mounted here" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert list(horovodrun.place.iterdir()) == []


@as_root
def test_a_launcher_in_another_time_namespace_spares_live_jobs(horovodrun: Horovodrun) -> None:
    process = horovodrun.start(["-np", "1"], python("print(1, flush=True); import time; time.sleep(1000)"))
    assert process.stdout
    process.stdout.readline()
    (home,) = horovodrun.place.iterdir()
    (directory,) = home.iterdir()
    other = in_shell(horovodrun, 'exec unshare --time --boottime 100000 "$@"', *launch(1, "print(7)"))
    if b"unshare" in other.stderr:
        pytest.skip("Not here: the kernel has no time namespaces, or does not give them.")
    assert other.stdout == b"[0]<stdout>:7\n"
    assert directory.exists()
    process.terminate()
    process.communicate()
    assert list(horovodrun.place.iterdir()) == []


@as_root
@pytest.mark.parametrize("processes", [0, 1])
def test_a_limit_of_processes_is_named(horovodrun: Horovodrun, processes: int) -> None:
    """0: not even the keeper can be started; 1: the keeper, but no rank."""
    uid = 54321  # whose processes are counted: nobody's but ours
    os.chown(horovodrun.place, uid, uid)
    words = ["prlimit", f"--nproc={1 + processes}", "setpriv", f"--reuid={uid}", f"--regid={uid}", "--clear-groups"]
    words += ["--inh-caps=+dac_override", "--ambient-caps=+dac_override"]  # the interpreter may lie in root's home
    words += [sys.executable, "-m", "horovod.runner", "-np", "2", "/bin/echo", "hello"]
    done = subprocess.run(words, env=horovodrun.environ, capture_output=True, timeout=60, check=False, cwd="/")
    assert done.returncode == 1, done.stderr
    last = done.stderr.splitlines()[-1].decode()
    assert "Resource temporarily unavailable" in last
    assert f"this user may have {1 + processes} processes and threads; raise that limit (ulimit -u)" in last
    assert list(horovodrun.place.rglob("*")) == [], done.stderr


def test_a_low_soft_limit_of_open_files_is_raised_for_the_launcher_only(horovodrun: Horovodrun) -> None:
    words = launch(20, "import resource; print(resource.getrlimit(resource.RLIMIT_NOFILE))")
    done = in_shell(horovodrun, 'ulimit -Sn 64; ulimit -Hn 4096; exec "$@"', *words)
    assert done.returncode == 0, done.stderr
    assert sorted(line.partition(b":")[2] for line in done.stdout.splitlines()) == [b"(64, 4096)"] * 20


def test_a_low_hard_limit_of_open_files_is_named(horovodrun: Horovodrun) -> None:
    done = in_shell(horovodrun, 'ulimit -n 64; exec "$@"', *launch(20, "print(7)"))
    assert done.returncode == 1
    assert b"20 ranks need" in done.stderr and b"the hard limit is 64 (ulimit -Hn)" in done.stderr
    assert list(horovodrun.place.iterdir()) == []


@pytest.mark.parametrize("closed", [">&-", "2>&-", ">&- 2>&-", "<&- >&- 2>&-"])
def test_closed_standard_streams_are_as_dev_null(horovodrun: Horovodrun, closed: str, tmp_path: Path) -> None:
    file = tmp_path / "ran"
    code = f"print('out'); import sys; print('err', file=sys.stderr); open({str(file)!r}, 'a').write('x')"
    done = in_shell(horovodrun, f'"$@" {closed}', *launch(2, code))
    assert done.returncode == 0
    assert file.read_text() == "xx"
    assert done.stdout.count(b":out") == (0 if ">&-" in closed.replace("2>&-", "") else 2)
    assert done.stderr.count(b":err") == (0 if "2>&-" in closed else 2)
    assert b"Traceback" not in done.stderr


@pytest.mark.parametrize("one_pipe", [True, False])
def test_the_second_signal_ends_the_wait_for_a_reader(horovodrun: Horovodrun, one_pipe: bool) -> None:
    reader, writer = os.pipe()
    fcntl.fcntl(writer, fcntl.F_SETPIPE_SZ, 4096)
    process = horovodrun.start(["-np", "2"], python(CHATTER), stdout=writer, stderr=writer if one_pipe else None)
    os.close(writer)
    os.read(reader, 64)  # the ranks write; from here on nobody reads
    (keeper,) = map(int, Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split())
    process.send_signal(signal.SIGTERM)
    wait_for_end(keeper)
    with pytest.raises(subprocess.TimeoutExpired):
        process.wait(timeout=2.5)  # it waits for the reader, who might come back
    process.send_signal(signal.SIGTERM)
    assert process.wait(timeout=10) == 128 + signal.SIGTERM
    os.close(reader)


def test_a_stopped_keeper_does_not_keep_the_launcher(horovodrun: Horovodrun) -> None:
    process = horovodrun.start(
        ["-np", "2"], python("import os, time; print(os.getppid(), flush=True); time.sleep(1000)")
    )
    assert process.stdout
    keeper = int(process.stdout.readline().partition(b":")[2])
    os.kill(keeper, signal.SIGSTOP)
    process.terminate()
    assert process.wait(timeout=15) == 128 + signal.SIGTERM
    wait_for_end(keeper)
    assert list(horovodrun.place.iterdir()) == []
