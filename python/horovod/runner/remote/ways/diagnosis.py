"""Why a host cannot be used, in one line: from what ssh, a shell or Python has said to a fact and a remedy. Pure.

Used by `by_process`. The words looked for are those of OpenSSH and Python, which do not translate them.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Final, Optional

_NOT_FOUND: Final = 127
_NOT_EXECUTABLE: Final = 126
_FIREWALL: Final = "is it up, and does a firewall let ssh through"
_REFUSED: Final = r"Connection refused"
_NO_ANSWER: Final = r"timed out|Timeout|No route to host|Network is unreachable|Host is down"

# What ssh says -> what that means and what to do. The first that fits counts.
_SSH: Final = (
    (
        r"Could not resolve hostname|Name or service not known|Temporary failure in name resolution",
        "its name has no address; check its spelling, /etc/hosts and DNS",
    ),
    (_REFUSED, "nothing listens there on {port}; is sshd running, on this port (-p PORT)?"),
    (_NO_ANSWER, f"it does not answer on {{port}}; {_FIREWALL}?"),
    (
        r"REMOTE HOST IDENTIFICATION HAS CHANGED",
        "its host key is not the one that this machine knows: the host was reinstalled, or somebody intercepts the "
        "connection. If the new key is right: ssh-keygen -R {host}, then ssh {host} once by hand",
    ),
    (
        r"Host key verification failed|No \S+ host key is known",
        "this machine does not know its host key; connect once by hand (ssh {host}) and compare it, or add it to "
        "~/.ssh/known_hosts",
    ),
    (
        r"Permission denied|Too many authentication failures",
        "it refuses this user's key; put the public key into ~/.ssh/authorized_keys there, or name another private key "
        "with -i. No password can be asked for",
    ),
)
_PYTHON: Final = (
    (
        r"No module named '?horovod'?(\.runner(\.remote(\.agent)?)?)?'?\s*$|No module named .?horovod",
        "{python} has no such Horovod there; install this version for it",
    ),
)


@dataclass(frozen=True)
class Facts:
    """What was seen of an agent that did not come up, or went.

    Attributes:
        host: its name.
        python: the interpreter that was to run.
        port: of ssh, or None: what the user's configuration says.
        code: exit code of ssh (which passes on that of the command), or None: it was still running.
        said: what came over stderr.
        patience_s: how long it was waited for.
    """

    host: str
    python: str
    port: Optional[int]
    code: Optional[int]
    said: str
    patience_s: float

    def why(self) -> str:
        """The sentence, without the host's name and a stop."""
        words = {
            "host": self.host,
            "python": self.python,
            "port": f"port {self.port}" if self.port else "the ssh port",
        }
        for pattern, meaning in (*_SSH, *_PYTHON):
            if re.search(pattern, self.said, re.MULTILINE):
                return meaning.format(**words)
        if self.code in (_NOT_FOUND, _NOT_EXECUTABLE):
            return (
                f"there is no {self.python} that can be executed there; the same environment must be at the same place "
                "on all hosts"
            )
        if self.code is None:
            return f"it has not answered within {self.patience_s:g} s (--start-timeout); {_FIREWALL}?{self._quoted()}"
        return f"starting the agent there ended with code {self.code}{self._quoted()}"

    @property
    def may_come(self) -> bool:
        """Nothing has answered there, or not in time: the host may only be starting."""
        return self.code is None or re.search(f"{_REFUSED}|{_NO_ANSWER}", self.said) is not None

    @property
    def last_line(self) -> str:
        """Of what was said; empty when nothing was."""
        lines = [line.strip() for line in self.said.splitlines() if line.strip()]
        return lines[-1][:500] if lines else ""

    def _quoted(self) -> str:
        return f": {self.last_line}" if self.last_line else ""


def table(failures: dict[str, str], hosts: int) -> str:
    """All failures of a start, one line each."""
    if len(failures) == 1:
        host, why = next(iter(failures.items()))
        return cannot_be_used(host, why)
    lines = "\n".join(f"  {host}: {_ended(why)}" for host, why in failures.items())
    return f"{len(failures)} of {hosts} hosts cannot be used:\n{lines}"


def cannot_be_used(host: str, why: str) -> str:
    """The sentence about one host."""
    return f"{host} cannot be used: {_ended(why)}"


def _ended(text: str) -> str:
    return text if text.endswith((".", "?", "!")) else text + "."
