"""The agent of a host that calls its launcher by TCP (`by_tcp`), for programs that have a process on each host already.

Nothing listens here. Both sides prove the job's secret before either looks at what the other one says, and all that
follows carries codes; see `horovod._net.handshake`. Nothing is encrypted, so the ranks' secret does not travel: both
sides derive it.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Mapping
from typing import Final, NamedTuple, Optional

from horovod._net.clusters.launchers import SECRET_VARIABLE
from horovod._net.failures import AuthenticationError, ConnectError, ProtocolError
from horovod._net.handshake import calling
from horovod._net.handshake.frames import auth, tcp_options
from horovod._net.handshake.frames.links import Link, LinkClosedError
from horovod._net.handshake.frames.messages import FORMS, ROLE_AGENT, Post, Ready
from horovod.runner.loop import Loop
from horovod.runner.remote.ways.by_process import ProcessConnection, own_environ
from horovod.runner.remote.ways.diagnosis import Facts
from horovod.runner.remote.ways.relay import Relay
from horovod.runner.remote.ways.ssh_command import own_agent

AGENT: Final = 0
LAUNCHER: Final = 1
HOST: Final = "host="
_ENDING_S: Final = 10.0  # for an agent that has lost its launcher to end its ranks
_LAST_S: Final = 5.0  # for the launcher to hear that the agent has ended


class Home(NamedTuple):
    """How the process that runs an agent lives, where its ranks are to live so; see `Transport.at_home`.

    Attributes:
        cwd: its folder.
        environ: its variables, and where Python finds packages there.
        words: what the launcher's program is to know of this host (`CallingAgents.words`).
    """

    cwd: str
    environ: Mapping[str, str]
    words: str = ""


def credentials_of(secret: bytes, job: str, side: int) -> auth.Credentials:
    """Of the launcher, or of an agent.

    Args:
        secret, job: of the job, which both know.
        side: AGENT or LAUNCHER.
    """
    return auth.Credentials(secret, auth.job_digest(f"{job}/agents"), 0, side, 2)


def serve(
    credentials: auth.Credentials,
    host: str,
    launcher: tuple[str, int],
    patience_s: float,
    link_timeout_s: float,
    home: Optional[Home] = None,
) -> Optional[str]:
    """Calls the launcher, waits until it wants this host, and runs the agent until its part of the job is over.

    Args:
        credentials: of an agent.
        host: the launcher's name for this host.
        launcher: address, in numbers, and port where it listens.
        patience_s: for it to answer.
        link_timeout_s: see `vigil`.
        home: of this process; None: its ranks live as the launcher does.

    Returns:
        The last line of what the agent has written to stderr, empty where there was none: its part of the job is over.
        None: no agent was wanted before the connection ended. The launcher has ended, the connection was cut, or
        another process has called for this host. It may be called again: a launcher that has ended cannot be reached.

    Raises:
        ConnectError: the launcher cannot be reached, or does not hold the secret.
    """
    tcp_options.believe_silence_of(link_timeout_s)
    where = f"The launcher cannot be reached at {launcher[0]} port {launcher[1]}"
    try:
        link = calling.call(credentials, ROLE_AGENT, *launcher, time.monotonic() + patience_s, patient=True)
    except LinkClosedError as error:
        raise ConnectError(f"{where}: {error}.") from error
    except (AuthenticationError, ProtocolError) as error:
        raise ConnectError(f"{where}: the process that listens there does not hold this job's secret.") from error
    loop = Loop()
    try:
        cwd, inherited, words = home or Home("/", own_environ())
        if not _is_wanted(loop, link, f"{host}\n{words}" if words else host):
            return None
        environ = {**inherited, SECRET_VARIABLE: credentials.ranks_secret().hex()}
        facts = Facts(host, sys.executable, None, None, "", patience_s)
        agent = ProcessConnection(loop, own_agent(sys.executable, link_timeout_s), environ, facts, cwd)
        try:
            _carry(loop, link, agent.fds)
            return agent.ending(_ENDING_S).words
        finally:
            agent.close(_ENDING_S)
    finally:
        link.close()
        loop.close()


def listens(credentials: auth.Credentials, launcher: tuple[str, int], deadline_s: float) -> bool:
    """The launcher of this job still does.

    Args:
        credentials, launcher: as for `serve`.
        deadline_s: for its answer; one that comes too late does not count.
    """
    try:
        calling.call(credentials, ROLE_AGENT, *launcher, deadline_s).close()
    except (LinkClosedError, AuthenticationError, ProtocolError):
        return False
    return True


def _carry(loop: Loop, link: Link, fds: tuple[int, int]) -> None:
    """The streams of the agent, until they have ended."""
    relay = Relay(loop, link, fds, lambda _: None)
    try:
        loop.until(lambda: relay.sent or relay.over)
        loop.until(lambda: relay.over, time.monotonic() + _LAST_S)
    finally:
        relay.close("")  # its agent ends when these have ended


def _is_wanted(loop: Loop, link: Link, host: str) -> bool:
    """Waits until the launcher wants this host; False: it has ended."""
    heard: list[object] = []
    link.reader.allowed = frozenset({FORMS[Ready].kind})
    loop.watch(link.fileno(), lambda: heard.extend(itertools.islice(link.receive(), 1)))
    try:
        link.send(Post(f"{HOST}{host}"))
        loop.until(lambda: bool(heard))
    except (LinkClosedError, ProtocolError):
        return False
    finally:
        loop.watch(link.fileno(), None)
    return True
