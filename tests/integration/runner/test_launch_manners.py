"""The launcher's manners, with the ranks on this host and by agents: what it shows, runs, repeats and only plans."""

from __future__ import annotations

import os
import re
import select
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from .conftest import PATIENCE_S, Horovodrun, python

HERE, ELSEWHERE, SPREAD = "-np 3", "-np 3 -H elsewhere.invalid:3", "-np 3 -H localhost:1,elsewhere.invalid:2"
ANYWHERE = pytest.mark.parametrize("where", [HERE, ELSEWHERE], ids=["here", "elsewhere"])


def on_a_terminal(horovodrun: Horovodrun, options: str, code: str, typed: bytes = b"") -> tuple[int, str]:
    """Exit code, and what a terminal has got that is all three streams of the launcher."""
    master, slave = os.openpty()
    process = horovodrun.start(options.split(), python(code), stdin=slave, stdout=slave, stderr=slave)
    os.close(slave)
    os.write(master, typed)
    written = b""
    try:
        while data := os.read(master, 1 << 16):
            written += data
    except OSError:  # EIO: nobody has it open any more
        pass
    finally:
        os.close(master)
    return process.wait(PATIENCE_S), written.decode().replace("\r\n", "\n")


@ANYWHERE
def test_only_chosen_ranks_are_shown_and_all_are_kept(by_agent: Horovodrun, tmp_path: Path, where: str) -> None:
    code = """
        import os, sys
        rank = os.environ["HOROVOD_RANK"]
        print("out", rank)
        print("err", rank, file=sys.stderr)
        sys.exit(7 * (rank == "1"))
    """
    done = by_agent.python(f"{where} --ranks 0,2 --output-filename {tmp_path}/o", code)
    assert sorted(done.stdout.splitlines()) == [b"[0]<stdout>:out 0", b"[2]<stdout>:out 2"]
    assert (tmp_path / "o/rank.1/stdout").read_bytes() == b"out 1\n"
    assert done.returncode == 7
    assert b"[1]<stderr>" not in done.stderr
    assert b"rank 1 (" in done.stderr
    assert b"Last lines of its stderr:\n  err 1\n" in done.stderr


def test_a_terminal_gets_colors_and_a_summary(horovodrun: Horovodrun) -> None:
    horovodrun.environ.update(TERM="xterm")
    code, text = on_a_terminal(horovodrun, "-np 1", "print('x')")
    assert code == 0
    assert "\x1b[36m[0]<stdout>:\x1b[0mx\n" in text
    assert re.search(
        r"\nhorovodrun: 1 rank on 1 host finished successfully after \d+\.\d s; it took \d+ MiB at its peak\.\n", text
    )
    horovodrun.environ.update(NO_COLOR="1")
    code, text = on_a_terminal(horovodrun, "-np 1", "print('x')")
    assert "\x1b" not in text
    assert "[0]<stdout>:x\n" in text


def test_the_summary_tells_the_rank_that_took_most_memory(horovodrun: Horovodrun) -> None:
    code = """
        import os
        os.mkdir(os.path.join(os.environ["HOROVOD_RENDEZVOUS_DIR"], "meeting" + os.environ["HOROVOD_RANK"]))
        block = b"x" * ((200 << 20) * (os.environ["HOROVOD_RANK"] == "2"))
    """
    done = horovodrun.python("-np 3 --verbose", code)
    found = re.search(rb"3 ranks .* finished successfully after .* s; rank 2 took most memory, (\d+) MiB", done.stderr)
    assert found
    assert 200 <= int(found.group(1)) < 400


def test_agents_tell_the_memory_of_their_ranks(by_agent: Horovodrun) -> None:
    done = by_agent.python("-np 1 -H elsewhere.invalid:1 --verbose", "block = b'x' * (200 << 20)")
    found = re.search(rb"1 rank on 1 host finished successfully after .* s; it took (\d+) MiB at its peak", done.stderr)
    assert found
    assert 200 <= int(found.group(1)) < 400


def test_a_module_of_the_working_directory_runs(horovodrun: Horovodrun, tmp_path: Path) -> None:
    (tmp_path / "pack").mkdir()
    (tmp_path / "pack/mod.py").write_text("import sys\nprint(__name__, sys.argv[1:])\n")
    done = horovodrun("-np 1 -m pack.mod -np 3", [], cwd=tmp_path)
    assert done.stdout == b"[0]<stdout>:__main__ ['-np', '3']\n"


def test_a_rank_that_dies_in_native_code_tells_its_stack(horovodrun: Horovodrun, tmp_path: Path) -> None:
    (tmp_path / "dies.py").write_text(
        "import ctypes, os\ndef read():\n    ctypes.string_at(0)\nif os.environ['HOROVOD_RANK'] == '2':\n    read()\n"
    )
    command = [sys.executable, str(tmp_path / "dies.py")]
    done = horovodrun(HERE, command)
    assert done.returncode == 139
    assert b"[2]<stderr>:Fatal Python error: Segmentation fault\n" in done.stderr
    assert b'dies.py", line 3 in read\n' in done.stderr
    horovodrun.environ["PYTHONFAULTHANDLER"] = ""
    assert b"Fatal Python error" not in horovodrun(HERE, command).stderr


@ANYWHERE
def test_a_job_is_started_again_until_it_ends_well(by_agent: Horovodrun, tmp_path: Path, where: str) -> None:
    code = """
        import os, sys
        count, rank = os.environ["HOROVOD_RESTART_COUNT"], os.environ["HOROVOD_RANK"]
        print("start", count, flush=True)
        sys.exit(5 * (rank == "1" and count < "1"))
    """
    done = by_agent.python(f"{where} --max-restarts 2 --output-filename {tmp_path}/o", code)
    assert done.returncode == 0
    assert (tmp_path / "o/rank.1/stdout").read_bytes() == b"start 0\nstart 1\n"
    lines = done.stderr.decode().splitlines()
    assert re.match(r"horovodrun: rank 1 \(\S+, pid \d+\) exited with code 5 ", lines[0])
    assert lines[1] == "horovodrun: all ranks are started again (restart 1 of 2)."


def test_each_start_has_a_secret_of_its_own_and_the_last_code_counts(horovodrun: Horovodrun) -> None:
    code = "import os, sys\nprint(os.environ['_HOROVOD_SECRET_KEY'])\nsys.exit(4)"
    done = horovodrun.python("-np 1 --max-restarts 1", code)
    first, second = done.stdout.splitlines()
    assert first != second
    assert done.returncode == 4


def test_restarts_go_on_when_nobody_reads_the_launchers_words(horovodrun: Horovodrun) -> None:
    read_fd, write_fd = os.pipe()
    os.close(read_fd)
    code = "import os, sys\nprint(os.environ['HOROVOD_RESTART_COUNT'])\nsys.exit(4)"
    done = horovodrun.python("-np 1 --max-restarts 2", code, stderr=write_fd)
    os.close(write_fd)
    assert (done.returncode, done.stdout.count(b"\n")) == (4, 3)


@pytest.mark.parametrize("where", [HERE, SPREAD], ids=["here", "spread"])
def test_a_dry_run_starts_nothing(by_agent: Horovodrun, tmp_path: Path, where: str) -> None:
    by_agent.environ.update(MY_TOKEN="hunter2", HOROVOD_CYCLE_TIME="3")
    done = by_agent(f"{where} --dry-run", ["touch", str(tmp_path / "started")])
    assert (done.returncode, done.stderr) == (0, b"")
    text = done.stdout.decode()
    assert text.startswith(f"command: touch {tmp_path}/started\ndirectory: {os.getcwd()}\n")
    assert (
        "\nlocalhost: ranks 0-2, on this machine" if where == HERE else "\nelsewhere.invalid: ranks 1, 2, by "
    ) in text
    assert "HOROVOD_CYCLE_TIME=3" in text
    assert "MY_TOKEN" in text
    assert "hunter2" not in text
    assert not (tmp_path / "started").exists()


def test_a_dry_run_tells_what_cannot_be_run(horovodrun: Horovodrun) -> None:
    done = horovodrun("-np 1 --dry-run", ["no-such-program"])
    assert (done.returncode, done.stdout) == (2, b"")
    assert b"The command 'no-such-program' is not found." in done.stderr


def test_a_dry_run_escapes_what_its_output_cannot_show(horovodrun: Horovodrun) -> None:
    horovodrun.environ["PYTHONIOENCODING"] = "utf-8:strict"
    done = horovodrun("-np 1 --dry-run", [b"echo", b"\xff"])
    assert (done.returncode, done.stderr) == (0, b"")
    assert done.stdout.startswith(b"command: echo '\\udcff'\n")


def test_one_rank_reads_what_is_typed_and_the_others_nothing(horovodrun: Horovodrun) -> None:
    code = "import os, sys; print(os.environ['HOROVOD_RANK'], sys.stdin.read().split())"
    done = horovodrun.python("-np 3 --stdin-rank 1", code, stdin=subprocess.PIPE, input=b"a b\n")
    assert sorted(done.stdout.splitlines()) == [b"[0]<stdout>:0 []", b"[1]<stdout>:1 ['a', 'b']", b"[2]<stdout>:2 []"]


def test_a_debugger_works_on_the_rank_that_reads(horovodrun: Horovodrun) -> None:
    horovodrun.environ.update(TERM="xterm", NO_COLOR="1")
    code = """
        import os
        answer = 42
        if os.environ["HOROVOD_RANK"] == "0":
            import pdb; pdb.set_trace()
        print("went on")
    """
    typed = b"p answer + 1\nc\n"
    code_, text = on_a_terminal(horovodrun, "-np 2 --stdin-rank 0 --ranks 1", code, typed)
    assert code_ == 0, text
    assert "[0]<stdout>:(Pdb) 43\n" in text
    assert "[0]<stdout>:(Pdb) went on\n" in text


def test_the_terminal_that_a_rank_reads_is_as_it_was_in_the_end(horovodrun: Horovodrun) -> None:
    code = """
        import os, sys, time, tty
        if os.environ["HOROVOD_RANK"] == "0":
            tty.setraw(0)
            print("raw", flush=True)
            time.sleep(60)
        time.sleep(1)
        sys.exit(3)
    """
    master, slave = os.openpty()
    modes = termios.tcgetattr(slave)
    done = horovodrun.python("-np 2 --stdin-rank 0", code, stdin=slave)
    assert (done.returncode, done.stdout) == (3, b"[0]<stdout>:raw\n")
    assert termios.tcgetattr(slave) == modes
    for fd in (master, slave):
        os.close(fd)


_SHELL = """
    import fcntl, os, signal, subprocess, sys, termios
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)
    signal.signal(signal.SIGTTOU, signal.SIG_IGN)
    def stopped():
        assert os.WIFSTOPPED(os.waitpid(job.pid, os.WUNTRACED)[1])
        os.tcsetpgrp(0, os.getpgrp())
        print("shell:", flush=True)
        print("it got", sys.stdin.readline(), flush=True)
    def foreground():
        os.tcsetpgrp(0, job.pid)
        os.killpg(job.pid, signal.SIGCONT)
    job = subprocess.Popen(sys.argv[1:], preexec_fn=lambda: os.setpgid(0, 0))
    stopped()
    foreground()
    stopped()
    foreground()
    sys.exit(job.wait())
"""


def test_who_is_stopped_or_in_the_background_reads_nothing(horovodrun: Horovodrun) -> None:
    code = """
        print("Name?", flush=True)
        print("name:", input(), flush=True)
        print("Age?", flush=True)
        print("age:", input(), flush=True)
    """
    master, slave = os.openpty()
    words = [*python(_SHELL), sys.executable, "-m", "horovod.runner", "-np", "1", "--stdin-rank", "0", *python(code)]
    streams = {"stdin": slave, "stdout": slave, "stderr": slave}
    shell = subprocess.Popen(words, env=horovodrun.environ, start_new_session=True, **streams)
    os.close(slave)
    said = b""
    for question, answer in (
        (b"shell:", b"for the shell\n"),
        (b"it got for the shell", b""),
        (b"Name?", b"Ada\n"),
        (b"name: Ada", b""),
        (b"Age?", b"\x1a"),
        (b"shell:", b"once more\n"),
        (b"it got once more", b"36\n"),
        (b"age: 36", b""),
    ):
        while question not in said:
            assert select.select([master], [], [], PATIENCE_S)[0], said
            said += os.read(master, 4096)
        said = said.partition(question)[2]
        os.write(master, answer)
    assert shell.wait(PATIENCE_S) == 0
    os.close(master)


def test_input_does_not_travel_to_other_hosts(by_agent: Horovodrun) -> None:
    done = by_agent(f"{ELSEWHERE} --stdin-rank 0", ["true"])
    assert done.returncode == 2
    assert b"--stdin-rank works when all ranks are on this machine" in done.stderr
