"""The launcher and its streams: prefixes, whole lines, files, times, and what the command line prints."""

from __future__ import annotations

import collections
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest

import horovod

from .conftest import Horovodrun, python


def test_lines_of_concurrent_writers_stay_whole(horovodrun: Horovodrun) -> None:
    code = """
        import os, random
        rank = int(os.environ["HOROVOD_RANK"])
        random.seed(rank)
        for fd, word in ((1, "out"), (2, "err")):
            lines = [f"{word} {rank} {i} " + "\u00fc\u6570" * random.randrange(80) + " end\\n" for i in range(1500)]
            data = "".join(lines).encode()
            while data:
                cut = random.randrange(1, 3000)
                os.write(fd, data[:cut])
                data = data[cut:]
    """
    done = horovodrun.python("-np 4", code, stderr=subprocess.STDOUT)
    assert done.returncode == 0
    counts: collections.Counter[tuple[str, str]] = collections.Counter()
    *lines, remark = done.stdout.decode().splitlines()
    assert remark.startswith("horovodrun: no rank called hvd.init()")
    for line in lines:
        match = re.fullmatch(r"\[(\d)\]<std(out|err)>:(out|err) (\d) (\d+) (?:\u00fc\u6570)* end", line)
        assert match, line
        rank, stream, word, writer, index = match.groups()
        assert (rank, stream) == (writer, word)
        assert counts[rank, stream] == int(index)
        counts[rank, stream] += 1
    assert set(counts.values()) == {1500}
    assert len(counts) == 8


def test_streams_stay_apart(horovodrun: Horovodrun) -> None:
    done = horovodrun("-np 1", ["sh", "-c", "echo out; echo err >&2; printf 'no end'"])
    assert done.stdout == b"[0]<stdout>:out\n[0]<stdout>:no end\n"
    assert done.stderr == b"[0]<stderr>:err\n"


def test_output_files(horovodrun: Horovodrun, tmp_path: Path) -> None:
    command = ["sh", "-c", "echo out $HOROVOD_RANK; printf 'a\\rb' >&2"]
    done = horovodrun(f"-np 11 --output-filename {tmp_path}/o", command)
    assert done.returncode == 0
    assert sorted(path.name for path in (tmp_path / "o").iterdir()) == [f"rank.{rank:02d}" for rank in range(11)]
    assert (tmp_path / "o/rank.07/stdout").read_bytes() == b"out 7\n"
    assert (tmp_path / "o/rank.10/stderr").read_bytes() == b"a\rb"
    assert b"[10]<stdout>:out 10\n" in done.stdout


def test_output_directory_of_a_single_rank(horovodrun: Horovodrun, tmp_path: Path) -> None:
    assert horovodrun("-np 1 --output-filename o", ["echo", "x"], cwd=tmp_path).returncode == 0
    assert (tmp_path / "o/rank.0/stdout").read_bytes() == b"x\n"


def test_timestamps(horovodrun: Horovodrun) -> None:
    done = horovodrun("-np 1 --prefix-output-with-timestamp", ["echo", "x"])
    assert re.fullmatch(rb"\w{3} \w{3} [ \d]\d \d\d:\d\d:\d\d \d{4}\[0\]<stdout>:x\n", done.stdout)


def test_a_reader_that_goes_away_does_not_end_the_job(horovodrun: Horovodrun, tmp_path: Path) -> None:
    process = horovodrun.start(["-np", "1"], ["sh", "-c", f"seq 100000; touch {tmp_path}/done"])
    assert process.stdout
    assert process.stdout.readline() == b"[0]<stdout>:1\n"
    process.stdout.close()
    assert process.wait(timeout=30) == 0
    assert (tmp_path / "done").exists()
    assert process.stderr
    process.stderr.close()


def test_the_exit_code_is_the_jobs_also_when_nobody_reads(horovodrun: Horovodrun) -> None:
    reader, writer = os.pipe()
    process = horovodrun.start(["-np", "1"], ["sh", "-c", "echo x >&2; exit 7"], stdout=writer, stderr=writer)
    os.close(reader)
    os.close(writer)
    assert process.wait(timeout=30) == 7


def test_words_after_the_command_are_its_own(horovodrun: Horovodrun) -> None:
    done = horovodrun("-np 1", ["echo", "-np", "3", "--", "--verbose"])
    assert done.stdout == b"[0]<stdout>:-np 3 -- --verbose\n"


def test_mistakes_have_code_2_and_one_line(horovodrun: Horovodrun) -> None:
    done = horovodrun("-np 2 --cycle-time-ms fast", ["true"])
    assert (done.returncode, done.stdout) == (2, b"")
    assert done.stderr == (
        b"horovodrun: error: --cycle-time-ms must be a number of milliseconds >= 0. Received: 'fast'.\n"
    )


def test_unknown_hosts_are_refused_by_name(horovodrun: Horovodrun) -> None:
    done = horovodrun("-np 2 -H localhost:1,no-such-host.invalid:1", ["echo"])
    assert done.returncode in (1, 2)  # 2: there is no ssh here to try
    assert done.stdout == b""
    assert b"no-such-host.invalid" in done.stderr


def test_hints_and_typing_mistakes_are_said_once_for_the_job(horovodrun: Horovodrun) -> None:
    horovodrun.environ.update(HOROVOD_CYCLE_TIMES="3", HOROVOD_BATCH_D2D_MEMCOPIES="0")
    code = """
        import os, sys
        sys.path.insert(0, os.environ["PYTHONPATH"])
        from horovod._core.settings import of_this_process, say_notices
        say_notices(of_this_process())
    """
    done = horovodrun.python("-np 2", code)
    assert done.returncode == 0
    *lines, _ = done.stderr.decode().splitlines()
    assert len(lines) == 2
    assert lines[0].endswith("has no effect. Did you mean HOROVOD_CYCLE_TIME?")
    assert "HOROVOD_BATCH_D2D_MEMCOPIES has no effect." in lines[1]


def test_version_and_check_build(horovodrun: Horovodrun) -> None:
    assert horovodrun("--version", []).stdout.decode() == f"{horovod.__version__}\n"
    done = horovodrun("--check-build", [])
    assert done.returncode == 0
    text = done.stdout.decode()
    assert text.startswith(f"Horovod v{horovod.__version__}:\n")
    for title in (
        "Available Frameworks:",
        "Available Controllers:",
        "Available Tensor Operations:",
        "Backends:",
        "Launchers:",
    ):
        assert f"\n{title}\n    [" in text
    assert "    [ ] MXNet\n" in text


def test_verbose_says_the_settings_and_their_sources(horovodrun: Horovodrun) -> None:
    horovodrun.environ["HOROVOD_CACHE_CAPACITY"] = "9"
    done = horovodrun("-np 2 --verbose --cycle-time-ms 2", ["true"])
    assert b"cycle_time_ms = 2 milliseconds (flag)" in done.stderr
    assert b"cache_capacity = 9 names (environment HOROVOD_CACHE_CAPACITY)" in done.stderr
    summary = rb"2 ranks on this machine, over shared memory; \d+ usable cores?, [\d.]+ for each; OMP_NUM_THREADS=\d+\n"
    assert re.search(summary, done.stderr)
    assert re.search(rb"rank 1 started with pid \d+\n", done.stderr)
    assert re.search(rb"rank 1 \(localhost, pid \d+\) ended with code 0 after \d+\.\d s\n", done.stderr)


def test_nothing_is_printed_for_programs_that_are_silent(horovodrun: Horovodrun) -> None:
    done = horovodrun("-np 1", python("pass"))
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")


def test_copies_that_know_nothing_of_one_another_are_remarked_upon(horovodrun: Horovodrun) -> None:
    done = horovodrun("-np 2", python("pass"))
    assert (done.returncode, done.stdout) == (0, b"")
    assert done.stderr.startswith(b"horovodrun: no rank called hvd.init(): 2 independent copies ran. Call it ")
    assert done.stderr.count(b"\n") == 1
    # A meeting that is over before the launcher looks was a meeting all the same.
    code = """
        import os
        place = os.path.join(os.environ["HOROVOD_RENDEZVOUS_DIR"], "meeting" + os.environ["HOROVOD_RANK"])
        os.mkdir(place)
        os.rmdir(place)
    """
    assert horovodrun.python("-np 2", code).stderr == b""


@pytest.mark.parametrize(
    "options",
    [
        "-np 2",
        "-np 2 --min-np 1",
        "-np 2 -H elsewhere.invalid:2",
        "-np 2 -H elsewhere.invalid:2 --min-np 1",
    ],
)
def test_ranks_whose_environment_was_cleared_hear_so(by_agent: Horovodrun, options: str) -> None:
    path = f"PYTHONPATH={by_agent.environ['PYTHONPATH']}"
    program = [sys.executable, "-c", "import horovod.numpy as hvd; hvd.init(); print(hvd.size())"]
    done = by_agent(options, ["env", "-i", path, *program])
    assert sorted(done.stdout.splitlines()) == [b"[0]<stdout>:1", b"[1]<stdout>:1"]
    last = done.stderr.decode().splitlines()[-1]
    assert "2 independent copies ran. 2 processes called hvd.init() without the variables that horovodrun" in last
    assert done.stderr.count(b"something in between, such as env -i, sudo") == 3  # each rank, and the launcher


def test_a_progress_bar_stays_one_line(horovodrun: Horovodrun) -> None:
    code = r"""
        import sys
        for part in range(3):
            sys.stdout.write(f"\r{part}/2")
            sys.stdout.flush()
        print()
        print("done")
    """
    done = horovodrun.python("-np 1", code)
    assert done.stdout.splitlines()[-1] == b"[0]<stdout>:done"
    assert done.stdout.count(b"\n") == 2
    assert done.stdout.split(b"\n")[0].split(b"\r")[-1] == b"[0]<stdout>:2/2"
