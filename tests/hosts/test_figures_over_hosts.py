"""The figures of a job over hosts come to its launcher by its agents: metrics, status, summary."""

from __future__ import annotations

import json
import re
import signal
import sys
import time
from pathlib import Path
from typing import Any

from prometheus_client.parser import text_string_to_metric_families

from .conftest import Hosts

SLOW = Path(__file__).parents[1] / "integration" / "runner" / "straggler_worker.py"
SCRAPE = "import sys, urllib.request; print(urllib.request.urlopen(sys.argv[1], timeout=20).read().decode())"


def asked(hosts: Hosts, words: list[str], on: int = 1) -> str:
    running = hosts.start_program([sys.executable, *words], on=on)
    return "\n".join(hosts.ended(running).out)


def until(condition: Any) -> Any:
    deadline = time.monotonic() + 30
    while not (found := condition()):
        assert time.monotonic() < deadline
    return found


def test_ranks_of_all_hosts_are_seen_and_the_slow_one_is_named(hosts: Hosts) -> None:
    running = hosts.start(
        "-np 3 -H host1:1,host2:1,host3:1 --summary --metrics-port 9400", [sys.executable, str(SLOW), "600"]
    )

    def connected() -> Any:
        words = ["-m", "horovod.runner", "--status", "--status-format", "json"]
        jobs = json.loads(asked(hosts, words))["jobs"]
        return jobs[0] if jobs and sum(rank["steps"] > 5 for rank in jobs[0]["ranks"]) == 3 else None

    try:
        job = until(connected)
        assert [rank["host"] for rank in job["ranks"]] == ["host1", "host2", "host3"]
        assert job["straggler"]["rank"] == 1, job
        assert job["straggler"]["host"] == "host2"

        families = text_string_to_metric_families(asked(hosts, ["-c", SCRAPE, "http://127.0.0.1:9400/metrics"]))
        samples = [sample for family in families for sample in family.samples]
        bytes_of = {s.labels["host"]: s.value for s in samples if s.name == "horovod_bytes_total"}
        assert set(bytes_of) == {"host1", "host2", "host3"}
        assert min(bytes_of.values()) > 4000
        assert [s.labels["rank"] for s in samples if s.name == "horovod_straggler"] == ["1"]
        # It listens on this host's loopback alone.
        assert asked(hosts, ["-c", SCRAPE, "http://10.77.0.11:9400/metrics"], on=2) == ""
    finally:
        running.signal(signal.SIGTERM)
        ended = hosts.end(running)
    assert ended.code == 128 + signal.SIGTERM
    assert any(re.match(r"horovodrun: rank 1 on host2: computing", line) for line in ended.err), ended.err


def test_the_summary_has_what_ranks_counted_until_their_end(hosts: Hosts) -> None:
    ended = hosts("-np 2 -H host1:1,host2:1 --summary", [sys.executable, str(SLOW), "2"])
    assert ended.code == 0
    text = "\n".join(ended.err)
    assert re.search(r"rank 0 on host1: computing \d+ %, waiting for others \d+ %", text), text
    assert "Rank 1 on host2 is the slowest" in text, text
