"""Small functions of upstream's launcher that other people call, each complete in itself; `import_paths` says where.
Nothing of ours uses them."""

from __future__ import annotations

import base64
import contextlib
import hashlib
import hmac
import os
import pickle
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import IO, TYPE_CHECKING, Any, Callable, Final, Optional, Union

from horovod._net.clusters.launchers import LAUNCHERS, SECRET_VARIABLE
from horovod._net.identity import host_identity, hostname
from horovod._net.secret import new_secret
from horovod.runner.machines.hosts import Slot, parse_hosts, read_hostfile
from horovod.runner.machines.this_host import is_local

if TYPE_CHECKING:
    from horovod.runner.launch import _HorovodArgs


# ---- objects as text, keys and codes made with them


def dumps_base64(obj: object, to_ascii: bool = True) -> Union[str, bytes]:
    """The object, pickled by cloudpickle, in base64: as text, or as bytes."""
    import cloudpickle  # type: ignore[import-untyped]

    encoded = base64.b64encode(cloudpickle.dumps(obj))
    return encoded.decode("ascii") if to_ascii else encoded


def loads_base64(encoded: Optional[Union[str, bytes]]) -> Any:
    """The object that `dumps_base64` was given; None for nothing. Load only what you have dumped yourself: pickles are
    programs."""
    return None if encoded is None else pickle.loads(base64.b64decode(encoded))


HOROVOD_SECRET_KEY: Final = SECRET_VARIABLE
DIGEST_LENGTH_BYTES: Final = 32


def make_secret_key() -> bytes:
    """A fresh random key of 256 bits."""
    return new_secret()


def compute_digest(key: bytes, content: bytes) -> bytes:
    """The code of `content` (HMAC-SHA256)."""
    return hmac.new(key, content, hashlib.sha256).digest()


def check_digest(key: bytes, content: bytes, digest: bytes) -> bool:
    """`digest` is the code of `content`. Takes equally long whether it is or not."""
    return hmac.compare_digest(compute_digest(key, content), digest)


# ---- the environment


# Names that a launcher does not hand to ranks: exported bash functions and what differs from shell to shell.
IGNORE_REGEXES: Final = frozenset({"BASH_FUNC_.*", "OLDPWD", ".*CUDA_VISIBLE_DEVICES", "_HOROVOD_SECRET_KEY"})


def get_env_rank_and_size() -> tuple[int, int]:
    """Rank and size as the launcher has put them into the environment, without `hvd.init()`; (0, 1) without one.

    Raises:
        PlacementError: its variables contradict one another.
    """
    for launcher in LAUNCHERS:
        if launcher.present(os.environ):
            numbers = launcher.numbers(os.environ, launcher.name)
            return numbers.rank, numbers.size
    return 0, 1


def is_exportable(name: str) -> bool:
    """The variable may be handed to processes of other jobs and hosts."""
    return not any(re.fullmatch(pattern, name) for pattern in IGNORE_REGEXES)


def set_env_from_args(env: dict[str, str], args: _HorovodArgs) -> dict[str, str]:
    """Puts the variables into `env` that tell ranks what `args` say, and returns it."""
    env.update(args.settings().to_environ())
    return env


# ---- hosts


# A place that no rank has.
INVALID_SLOT_INFO: Final = Slot("", -1, -1, -1, -1, -1, -1)


def parse_host_files(filename: str) -> str:
    """The hosts of a hostfile in the form of -H."""
    return ",".join(host.to_string() for host in read_hostfile(filename))


def parse_hosts_and_slots(hosts: str) -> tuple[list[str], dict[str, int]]:
    """The form of -H as names in order, and slots by name."""
    parsed = parse_hosts(hosts)
    return [host.hostname for host in parsed], {host.hostname: host.slots for host in parsed}


def host_hash(salt: Optional[str] = None) -> str:
    """Equal on processes that may share memory, so that containers of one host differ; `salt` keeps groups of them
    apart."""
    identity = host_identity()
    text = f"{hostname()}/{identity.boot_id}/{identity.ipc_namespace}/{salt or ''}"
    return f"{hostname()}-{hashlib.sha256(text.encode()).hexdigest()[:32]}"


def get_local_intfs() -> set[str]:
    """Names of the network interfaces of this machine."""
    return {name for _, name in socket.if_nameindex()}


def filter_local_addresses(all_host_names: Iterable[str]) -> list[str]:
    """Those of the names that are not this machine's."""
    return [name for name in all_host_names if not is_local(name)]


def resolve_host_address(host_name: str) -> str:
    """The host's IPv4 address; the name itself where it cannot be resolved."""
    try:
        return socket.gethostbyname(host_name)
    except OSError:
        return host_name


class LSFUtils:
    """What LSF says in the environment. The launcher itself reads `horovod.runner.allocations.lsf`."""

    @staticmethod
    def using_lsf() -> bool:
        """This process runs inside an LSF job."""
        return "LSB_JOBID" in os.environ

    @staticmethod
    def get_compute_hosts() -> list[str]:
        """The hosts of the allocation, each once, without the batch host, which LSF lists first."""
        return list(dict.fromkeys(os.environ.get("LSB_HOSTS", "").split()[1:]))


# ---- threads and time


def in_thread(
    target: Callable[..., Any],
    args: Sequence[Any] = (),
    name: Optional[str] = None,
    daemon: bool = True,
    silent: bool = False,
) -> threading.Thread:
    """Starts a thread that calls `target(*args)`; `silent`: its exceptions are swallowed."""
    if not isinstance(args, (tuple, list)):
        raise ValueError(f"args must be a tuple or a list. Received: {args!r}.")

    def call() -> None:
        with contextlib.suppress(*([Exception] if silent else [])):
            target(*args)

    thread = threading.Thread(target=call, name=name, daemon=daemon)
    thread.start()
    return thread


def on_event(
    event: threading.Event,
    func: Callable[..., Any],
    args: Sequence[Any] = (),
    stop: Optional[threading.Event] = None,
    check_stop_interval_s: float = 1.0,
) -> threading.Thread:
    """Starts a thread that calls `func(*args)` once `event` is set. `stop`, which is looked at every so many seconds,
    ends it without the call."""

    def wait() -> None:
        while not event.wait(None if stop is None else check_stop_interval_s):
            if stop is not None and stop.is_set():
                return
        if stop is None or not stop.is_set():
            func(*args)

    return in_thread(wait)


def execute_function_multithreaded(
    fn: Callable[..., Any],
    args_list: Sequence[Sequence[Any]],
    block_until_all_done: bool = True,
    max_concurrent_executions: int = 1000,
) -> Optional[dict[int, Any]]:
    """Calls `fn(*args)` for each of `args_list`, many at a time. Returns the results by index; None when
    `block_until_all_done` is false."""
    pool = ThreadPoolExecutor(max_workers=max(1, min(len(args_list), max_concurrent_executions)))
    futures = [pool.submit(fn, *args) for args in args_list]
    pool.shutdown(wait=block_until_all_done)
    return {index: future.result() for index, future in enumerate(futures)} if block_until_all_done else None


class Pipe:
    """What one thread writes another one reads. A writer waits until its text has been read."""

    def __init__(self) -> None:
        self._changed = threading.Condition()
        self._text = ""
        self._closed = False

    def write(self, buf: str) -> None:
        """Waits until what was written before is read, then leaves `buf`. RuntimeError when the pipe is closed."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or not self._text)
            if self._closed:
                raise RuntimeError("The pipe is closed.")
            self._text = buf
            self._changed.notify_all()

    def read(self, length: int = -1, timeout: Optional[float] = None) -> Optional[str]:
        """Waits for text; at most `length` characters of it, or all. None at the end, or after `timeout` seconds."""
        with self._changed:
            self._changed.wait_for(lambda: self._closed or bool(self._text), timeout)
            if not self._text:
                return None
            cut = len(self._text) if length < 0 else length
            found, self._text = self._text[:cut], self._text[cut:]
            self._changed.notify_all()
            return found

    def flush(self) -> None:
        """There is nothing to flush; files have it."""

    def close(self) -> None:
        """Ends the pipe; what was written can still be read."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()


class TimeoutException(Exception):
    """A deadline has passed."""


class Timeout:
    """A deadline.

    Args:
        timeout: seconds from now.
        message: of the exception; `{activity}` in it stands for what is waited for.
    """

    def __init__(self, timeout: float, message: str) -> None:
        self._timeout = timeout
        self._message = message
        self._deadline_s = time.monotonic() + timeout

    def timeout(self) -> float:
        """The seconds given at first."""
        return self._timeout

    def remaining(self) -> float:
        """Seconds left; 0 when it has passed."""
        return max(0.0, self._deadline_s - time.monotonic())

    def timed_out(self) -> bool:
        """It has passed."""
        return time.monotonic() >= self._deadline_s

    def check_time_out_for(self, activity: str) -> None:
        """Raises TimeoutException when it has passed. activity: what is waited for, a noun."""
        if self.timed_out():
            raise TimeoutException(
                f"{self._message.replace('{activity}', activity)} Deadline: {self._timeout:g} s for {activity}."
            )


# ---- commands of the shell


def run_briefly(command: str) -> Optional[tuple[str, int]]:
    """What the command wrote (both streams) and its exit code; None when there is no shell to run it."""
    try:
        done = subprocess.run(
            command,
            shell=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            check=False,
        )
    except OSError:
        return None
    return done.stdout.decode("utf-8", errors="replace"), done.returncode


GRACEFUL_TERMINATION_TIME_S: Final = 5
_LAST_LINES_S: Final = 1.0  # for what is in a pipe when all who are waited for have ended


def run_to_the_end(
    command: Union[str, list[str]],
    env: Optional[Mapping[str, str]] = None,
    stdout: Optional[Any] = None,
    stderr: Optional[Any] = None,
    index: Optional[int] = None,
    events: Optional[Iterable[threading.Event]] = None,
    prefix_output_with_timestamp: bool = False,
) -> int:
    """Runs the command in a process group of its own and waits for it; what it has left running in that group is
    killed. A process that has begun a session or group of its own stays; what it still writes is passed on, but not
    waited for.

    Args:
        command: for the shell; a list is executed as it is.
        env: its environment; None = this process's.
        stdout, stderr: files for text that get its output; None = those of this process.
        index: when given, lines begin with `[index]<stdout>:` or `[index]<stderr>:`.
        events: each of them stops the command when it is set.
        prefix_output_with_timestamp: lines begin with the time, too.

    Returns:
        The exit code, or 128 + signal.
    """
    process = subprocess.Popen(
        command,
        shell=isinstance(command, str),
        env=env,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        start_new_session=True,
    )
    over = threading.Event()
    for event in events or ():
        on_event(event, _stop, args=(process,), stop=over)
    try:
        pumps = []
        for source, target, name in ((process.stdout, stdout, "stdout"), (process.stderr, stderr, "stderr")):
            prefix = "" if index is None else f"[{index}]<{name}>:"
            words = (source, target or getattr(sys, name), prefix, prefix_output_with_timestamp)
            pumps.append(in_thread(_pump, words))
        code = process.wait()
        _signal(process, signal.SIGKILL)  # what it has started and left behind
        for pump in pumps:
            pump.join(_LAST_LINES_S)
    finally:
        over.set()
        _signal(process, signal.SIGKILL)
    return 128 - code if code < 0 else code


def _pump(source: IO[bytes], target: Any, prefix: str, with_time: bool) -> None:
    with source:
        for line in source:
            moment = time.asctime() if with_time else ""
            target.write(moment + prefix + line.decode("utf-8", errors="replace"))
            target.flush()


def _stop(process: subprocess.Popen[bytes]) -> None:
    _signal(process, signal.SIGTERM)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(GRACEFUL_TERMINATION_TIME_S)
    _signal(process, signal.SIGKILL)


def _signal(process: subprocess.Popen[bytes], number: int) -> None:
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, number)
