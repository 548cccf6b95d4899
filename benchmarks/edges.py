"""Ways to send over one edge between two hosts: one socket, several (striped), and without a copy (MSG_ZEROCOPY).

    edges.py [--rate 1gbit | none] [--rounds 7] [--seconds 0.5]

Streams between two namespaced hosts (as root), the ways in turns, one way and both ways at once; prints Gbit/s of
payload (medians) and the ratio to one plain socket. It says whether an engine that moves its bytes by one thread would
gain by another way of sending; on links of namespaces the kernel copies in any case, so MSG_ZEROCOPY can only lose
there, and a network card decides otherwise.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
from collections.abc import Sequence
from pathlib import Path

sys.path.insert(1, str(Path(__file__).resolve().parents[1] / "tests"))

from harness import line  # noqa: E402
from hosts.network import Network, why_absent  # noqa: E402

_WAYS = {"one socket": ("1",), "2 sockets": ("2",), "4 sockets": ("4",), "MSG_ZEROCOPY": ("1", "zerocopy")}
_DIRECTIONS = {"one way": ("send", "receive"), "both ways": ("both", "both")}
_MISSING = 3


def main(words: Sequence[str]) -> int:
    """Runs what the command line asks for."""
    parser = argparse.ArgumentParser(description="ways to send over one edge between two hosts")
    parser.add_argument("--rate", default="none", help="of the links, as tc says it; none: as fast as they go")
    parser.add_argument("--rounds", type=int, default=7)
    parser.add_argument("--seconds", type=float, default=0.5, help="of each stream")
    asked = parser.parse_args(words)
    reason = why_absent()
    if reason is not None:
        print(f"edges: no hosts can be made: {reason}", file=sys.stderr)
        return _MISSING
    network = Network(2)
    try:
        if asked.rate != "none":
            line.shape(network, asked.rate)
        rates = _measure(network, asked.rounds, asked.seconds)
    finally:
        network.close()
    print(f"Links: {asked.rate}. Gbit/s of payload, median of {asked.rounds}.\n")
    print("| | Gbit/s | to one socket |\n|---|---|---|")
    for direction in _DIRECTIONS:
        plain = rates[direction, "one socket"]
        for way in _WAYS:
            found = rates[direction, way]
            ratio = statistics.median(mine / theirs for mine, theirs in zip(found, plain))
            print(f"| {direction}, {way} | {statistics.median(found) / 1e9:.2f} | {ratio:.2f} |")
    return 0


def _measure(network: Network, rounds: int, seconds: float) -> dict[tuple[str, str], list[float]]:
    """Bits per second of the slower direction, by direction and way."""
    rates: dict[tuple[str, str], list[float]] = {(direction, way): [] for direction in _DIRECTIONS for way in _WAYS}
    one, other = network.hosts
    for _ in range(rounds):
        for direction, ends in _DIRECTIONS.items():
            for way, more in _WAYS.items():
                found = line.streams((one, other), ends, seconds, more)
                rates[direction, way].append(min(rate for rate in found if rate))
    return rates


if __name__ == "__main__":
    os.environ.setdefault("PYTHONDONTWRITEBYTECODE", "1")
    sys.exit(main(sys.argv[1:]))
