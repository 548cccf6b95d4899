"""The links between the hosts of a benchmark: how they are shaped, and what a plain TCP stream reaches on them.

Used by `over_hosts`. What collectives are held against is the measured stream and not the figure of the shaper, which
counts the headers too.
"""

from __future__ import annotations

import math
import os
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import dataclass

from contenders.peers import ROOT
from hosts.network import Host, Network

_STREAM = str(ROOT / "benchmarks" / "ranks" / "stream.py")
# The burst holds two of the largest packets that a host hands to its link (64 KB), so that the shaper cuts none of them
# into pieces; with half of it, streams in both directions reach 70 % of the rate. The queue is short: it takes what one
# link holds while several hosts send to it, not a whole tensor.
_BURST, _QUEUE = "128kb", "20ms"


@dataclass(frozen=True)
class Line:
    """Payload of plain TCP, bits per second.

    Attributes:
        one_way: of a stream that is alone.
        both_ways: of the slower of two streams against each other.
    """

    one_way: float
    both_ways: float

    def __str__(self) -> str:
        one, both = self.one_way / 1e9, self.both_ways / 1e9
        return f"line: plain TCP carries {one:.3f} Gbit/s one way, {both:.3f} each way both ways"

    def seconds(self, payload_bytes: float) -> float:
        """What so many bytes take at line rate, the better of the two."""
        rate = max(self.one_way, self.both_ways)
        return 8 * payload_bytes / rate if rate else math.nan


def shape(network: Network, rate: str) -> None:
    """Gives every link this rate (as `tc` says it), in both directions."""
    network.shape("tbf", "rate", rate, "burst", _BURST, "latency", _QUEUE)


def measure(network: Network, seconds: float) -> Line:
    """Streams between the first two hosts."""
    one, other = network.hosts[:2]
    one_way = max(streams((one, other), ("send", "receive"), seconds))
    return Line(one_way, min(streams((one, other), ("both", "both"), seconds)))


def streams(pair: tuple[Host, Host], ways: Sequence[str], seconds: float, more: Sequence[str] = ()) -> list[float]:
    """Bits per second that each of the two has received.

    Args:
        pair: the hosts.
        ways: what each does: "send", "receive" or "both".
        seconds: how long.
        more: further words of `ranks/stream.py`: how many sockets, and whether without a copy.
    """
    ends = []
    for here, there, way in zip(pair, reversed(pair), ways):
        words = [sys.executable, "-S", _STREAM, here.address, there.address, way, str(seconds), *more]
        ends.append(here.start(words, os.environ, stdin=subprocess.PIPE))
    for end in ends:
        end.entered.stdout.readline()  # it listens
    for end in ends:
        end.entered.stdin.write(b"go\n")
        end.entered.stdin.flush()
    return [float(end.end(patience_s=seconds + 20).stdout) for end in ends]
