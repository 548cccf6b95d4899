"""A small process between the launcher and the ranks of one host: starts them, says how they end, leaves nothing.

Started by `process` as a script of its own (`python -I -S keeper.py CONTROL_FD LAUNCHER_PID DIRECTORY`), so it imports
the standard library only, and of that what takes no time: the ranks wait for it. It has one thread, because the
parent-death signal that it gives the ranks follows the parent *thread*; it is a child subreaper, so that what a rank
starts and abandons stays its descendant and can be found. When the launcher is gone, even by SIGKILL, it kills every
descendant and removes the job's directory. Under an agent it does the same when the agent's beats stop, because the
launcher has given that host up by then. It decides nothing else: when to send which signal is the launcher's business.

It inherits the descriptor that holds the lock on the job's directory, so that nobody takes the directory for a dead
job's while the keeper is at work.

Messages go over a socket pair (`packed`). In: {"start": {...}}, {"further": {...}} (one more rank of a job that grows;
its descriptors come along), {"signal": n, "ranks": [...]}, {"alive": seconds} (from the first on, one is expected every
second, and so many seconds without one mean that the agent stands still), {"finish": true}.
Out: {"started": rank, "pid": p}, {"refused": rank, "errno": n}, {"exited": rank, "status": s, "at": monotonic seconds,
"how": words, "peak": bytes of memory}, {"done": true}.
"""

from __future__ import annotations

import _socket  # the same without its enums
import ctypes
import errno
import marshal
import os
import resource
import select
import sys
import time

TYPE_CHECKING = False  # typing would be imported for it alone
if TYPE_CHECKING:
    import signal
    from collections.abc import Container
    from typing import Any, Callable, Optional
else:
    import _signal as signal  # the same without its enums

_LENGTH_BYTES = 4
_PASSED_BYTES = 1024  # descriptors that come along with one message
_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LEFTOVER_GRACE_S = 0.4  # for helpers of the ranks that clean up when their rank is gone
_CLEANER_GRACE_S = 2.0  # for those that clean up when everybody else is gone
KILL_PATIENCE_S = 5.0
_TICK_S = 1.0
# Only these know the names of a dead rank's semaphores and shared memory. They remove them and go as
# soon as no process is left that holds a pipe or a connection to them, such as a loader's worker.
# A keeper of a job that a rank has started cleans up after that job's ranks.
_CLEANERS = (b"multiprocessing.resource_tracker", b"torch_shm_manager", b"/horovod/runner/processes/keeper.py")


def packed(message: dict[str, Any]) -> bytes:
    """A message as bytes: its length, and how Python itself writes values. Both ends are the same Python, and nobody
    else holds the sockets. JSON would take the keeper as long to import as all the rest."""
    data = marshal.dumps(message)
    return len(data).to_bytes(_LENGTH_BYTES, "big") + data


def unpacked(received: bytearray) -> list[dict[str, Any]]:
    """Takes the messages that are complete off what was received."""
    found = []
    while len(received) >= _LENGTH_BYTES:
        end = _LENGTH_BYTES + int.from_bytes(received[:_LENGTH_BYTES], "big")
        if len(received) < end:
            break
        found.append(marshal.loads(received[_LENGTH_BYTES:end]))
        del received[:end]
    return found


class Keeper:
    """See the head of the file.

    Args:
        control: descriptor of the socket to the launcher.
        launcher_pid: whose end means the end of the job.
        directory: of the job, to be removed in the end.
    """

    def __init__(self, control: int, launcher_pid: int, directory: str) -> None:
        self._control = control
        self._socket = _socket.socket(fileno=control)
        self._passed: list[int] = []  # descriptors that no message has claimed yet
        self._job: dict[str, Any] = {}
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._poller = select.epoll()
        self._poller.register(control, select.EPOLLIN)
        self._wake_fd, write_fd = os.pipe()
        os.set_blocking(self._wake_fd, False)
        os.set_blocking(write_fd, False)
        signal.set_wakeup_fd(write_fd, warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        self._poller.register(self._wake_fd, select.EPOLLIN)
        self._launcher_fd = _pidfd(launcher_pid)
        if self._launcher_fd >= 0:
            self._poller.register(self._launcher_fd, select.EPOLLIN)
        self._launcher_pid = launcher_pid
        self._rank_of_pid: dict[int, int] = {}
        self._pid_of_pidfd: dict[int, int] = {}
        self._directory = directory
        self._received = bytearray()
        self._heard_s: Optional[float] = None  # when an agent was last alive
        self._silence_s = 0.0  # of it that is believed
        self._turned_s = time.monotonic()

    def serve(self) -> None:
        """Runs until the launcher says "finish" or is gone."""
        going_on = os.getppid() == self._launcher_pid
        while going_on:
            # epoll reports descriptors in the order in which they became ready: the order in which ranks died.
            events = [fd for fd, _ in self._poller.poll(None if self._heard_s is None else _TICK_S)]
            for fd in events:
                if fd in self._pid_of_pidfd:
                    self._reap_rank(fd)
            if self._wake_fd in events:
                self._reap_others()
            if self._launcher_fd in events:
                going_on = False
            if self._control in events:
                going_on = self._take_commands() and going_on
            if self._is_alone():
                self._end()
                if os.getppid() == self._launcher_pid:
                    os.kill(self._launcher_pid, signal.SIGKILL)  # it would stand there for ever, with nothing to do
                return
        self._end()

    def _is_alone(self) -> bool:
        """The agent stands still: it was stopped."""
        now_s, turned_s = time.monotonic(), self._turned_s
        self._turned_s = now_s
        if self._heard_s is not None and now_s - turned_s > 2 * _TICK_S:
            self._heard_s = now_s  # this process has stood still itself, and starts to count again
        return self._heard_s is not None and now_s - self._heard_s > self._silence_s

    def _take_commands(self) -> bool:
        try:
            data, along, _, _ = self._socket.recvmsg(1 << 20, _PASSED_BYTES)
        except OSError:
            data, along = b"", []
        for _, _, fds in along:
            self._passed += memoryview(fds).cast("i")
        if not data:
            return False
        self._received += data
        for message in unpacked(self._received):
            if "start" in message:
                self._start(message["start"])
            elif "further" in message:
                self._start_further(message["further"])
            elif "signal" in message:
                self._signal(message["signal"], set(message["ranks"]))
            elif "alive" in message:
                self._heard_s, self._silence_s = time.monotonic(), message["alive"]
            else:
                return False
        return True

    def _start(self, job: dict[str, Any]) -> None:
        os.set_inheritable(job["lock"], False)
        for rank in job["ranks"]:
            for fd in (*rank["closed"], *rank["inherited"]):
                os.set_inheritable(fd, False)
            rank["env"] = {**job["env"], **rank["env"]}
        self._job = job
        for rank in job["ranks"]:
            self._start_rank(rank)

    def _start_further(self, rank: dict[str, Any]) -> None:
        """One more: its own descriptors have come under other numbers than the launcher has them under."""
        received = {theirs: self._passed.pop(0) for theirs in rank["closed"]}
        rank["env"] = {**self._job["env"], **rank["env"]}
        rank["stdout"], rank["stderr"] = received[rank["stdout"]], received[rank["stderr"]]
        rank["moved"] = [(received[fd], fd) for fd in rank["inherited"] if fd in received]
        rank["inherited"] = [fd for fd in rank["inherited"] if fd not in received]
        rank["closed"] = list(received.values())
        self._start_rank(rank)

    def _start_rank(self, rank: dict[str, Any]) -> None:
        try:
            pid, error = self._fork(rank, self._job)
        except OSError as failure:  # no further process, or no further descriptor
            pid, error = 0, failure.errno or errno.EIO
        for fd in rank["closed"]:
            os.close(fd)
        if error:
            if pid:
                os.waitpid(pid, 0)
            self._tell({"refused": rank["rank"], "errno": error, "forked": bool(pid)})
            return
        self._rank_of_pid[pid] = rank["rank"]
        self._tell({"started": rank["rank"], "pid": pid})
        pidfd = _pidfd(pid)
        if pidfd >= 0:
            self._pid_of_pidfd[pidfd] = pid
            self._poller.register(pidfd, select.EPOLLIN)

    def _fork(self, rank: dict[str, Any], job: dict[str, Any]) -> tuple[int, int]:
        """Forks and executes; returns when the program runs or is known not to. Gives the pid and the errno, or 0."""
        keeper_pid = os.getpid()
        read_fd, write_fd = os.pipe()
        try:
            pid = os.fork()
        except OSError:
            os.close(read_fd)
            os.close(write_fd)
            raise
        if pid == 0:
            try:
                # A process group of its own in the keeper's session, which has no terminal. Not a session of its own:
                # Linux schedules sessions as groups (autogroup), and sched_yield does not reach another group, so that
                # crowded ranks could not give the core to one another (4 ranks on 2 cores: 690 us instead of 50).
                os.setpgid(0, 0)
                self._libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
                if os.getppid() != keeper_pid:
                    os._exit(1)
                signal.set_wakeup_fd(-1)
                for number in (*_IGNORED, signal.SIGCHLD, signal.SIGXFSZ):  # Python itself ignores the last one
                    signal.signal(number, signal.SIG_DFL)
                signal.pthread_sigmask(signal.SIG_SETMASK, [])
                os.dup2(os.open(os.devnull, os.O_RDONLY) if rank["stdin"] < 0 else rank["stdin"], 0)
                os.dup2(rank["stdout"], 1)
                os.dup2(rank["stderr"], 2)
                for fd in rank["inherited"]:
                    os.set_inheritable(fd, True)
                for fd, number in rank.get("moved", ()):
                    if number == write_fd:
                        write_fd = os.dup(write_fd)
                    os.dup2(fd, number)
                resource.setrlimit(resource.RLIMIT_NOFILE, tuple(job["open_files"]))
                os.chdir(job["cwd"])
                os.execve(job["command"][0], job["command"][1:], rank["env"])
            except OSError as error:
                os.write(write_fd, str(error.errno or errno.EIO).encode())
            finally:
                os._exit(127)
        os.close(write_fd)
        answer = os.read(read_fd, 16)
        os.close(read_fd)
        return pid, int(answer or b"0")

    def _signal(self, number: int, ranks: set[int]) -> None:
        for pid, rank in self._rank_of_pid.items():
            if rank in ranks:
                try:
                    os.killpg(pid, number)
                    if number == signal.SIGTERM:
                        os.killpg(pid, signal.SIGCONT)  # a stopped process does not handle signals
                except OSError:
                    pass  # it ended a moment ago; its exit is on its way

    def _reap_rank(self, pidfd: int) -> None:
        pid = self._pid_of_pidfd.pop(pidfd)
        self._poller.unregister(pidfd)
        os.close(pidfd)
        self._report(*os.wait4(pid, 0))

    def _reap_others(self) -> None:
        try:
            while os.read(self._wake_fd, 4096):
                pass
        except BlockingIOError:
            pass
        watched = set(self._pid_of_pidfd.values())
        while True:
            try:
                info = os.waitid(os.P_ALL, 0, os.WEXITED | os.WNOHANG | os.WNOWAIT)
            except ChildProcessError:
                return
            if info is None or info.si_pid in watched:
                return  # a watched rank's own descriptor will report it, in the order of deaths
            self._report(*os.wait4(info.si_pid, 0))

    def _report(self, pid: int, status: int, used: resource.struct_rusage) -> None:
        rank = self._rank_of_pid.pop(pid, None)
        if rank is not None:
            how = f"was killed by signal {status & 0x7F}" if status & 0x7F else f"exited with code {status >> 8}"
            self._leave_word(rank, how)
            peak = used.ru_maxrss << 10  # of its largest process; Linux counts in KiB
            self._tell({"exited": rank, "status": status, "at": time.monotonic(), "how": how, "peak": peak})

    def _leave_word(self, rank: int, how: str) -> None:
        """For ranks that wait for this one in hvd.init() and have no connection to it
        (`horovod._net.meeting.deaths`)."""
        draft = os.path.join(self._directory, f"draft.{rank}")
        try:
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(how)
            os.rename(draft, os.path.join(self._directory, f"ended.{rank}"))
        except OSError:
            pass  # somebody has removed the directory: nobody can wait there

    def _tell(self, message: dict[str, Any]) -> None:
        data = packed(message)
        try:
            while data:
                data = data[os.write(self._control, data) :]
        except OSError:
            pass  # the launcher is gone; the loop will see that

    def _end(self) -> None:
        for pid in list(self._rank_of_pid):
            _kill(pid)
        deadline = time.monotonic() + _LEFTOVER_GRACE_S
        while _reap_all() and time.monotonic() < deadline:
            select.select([self._wake_fd], [], [], 0.02)
        kill_in_order(lambda: descendants(os.getpid()) if _reap_all() else [], KILL_PATIENCE_S)
        remove(self._directory)
        try:
            os.rmdir(os.path.dirname(self._directory))
        except OSError:
            pass  # other jobs of this user are in it
        self._tell({"done": True})


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1  # an old kernel: SIGCHLD and the control socket still tell, without the order of deaths


def _kill(pid: int) -> None:
    try:
        os.kill(pid, signal.SIGKILL)
    except OSError:
        pass  # it has ended


def _reap_all() -> bool:
    """Reaps what has ended; says whether there are children left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def kill_in_order(find: Callable[[], list[int]], patience_s: float) -> None:
    """Kills all processes that are found until there are none, and takes no longer than `patience_s`; those that clean
    up get time for it when all others are gone."""
    spared_until = time.monotonic() + min(_CLEANER_GRACE_S, patience_s / 2)
    deadline = time.monotonic() + patience_s
    while (found := find()) and time.monotonic() < deadline:
        for pid in found:
            if time.monotonic() < spared_until and _is_cleaner(pid):
                continue
            _kill(pid)
        time.sleep(0.005)


def descendants(root: int, spared: Container[int] = ()) -> list[int]:
    """The processes below this one, without the spared and what is below those."""
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
            if int(name) not in spared:
                children.setdefault(parent, []).append(int(name))
    found = [root]
    for pid in found:
        found += children.get(pid, [])
    return found[1:]


def _is_cleaner(pid: int) -> bool:
    try:
        with open(f"/proc/{pid}/cmdline", "rb") as file:
            words = file.read()
    except OSError:
        return False
    return any(cleaner in words for cleaner in _CLEANERS)


def remove(directory: str) -> None:
    """Removes a directory and all below it as far as that is possible, also while somebody else removes it too."""
    try:
        entries = list(os.scandir(directory))
    except OSError:
        return  # somebody else removed it, or the file system is gone: nothing more to be done from here
    for entry in entries:
        try:
            if entry.is_dir(follow_symlinks=False):
                remove(entry.path)
            else:
                os.unlink(entry.path)
        except OSError:
            pass  # somebody else was faster; what is in the way otherwise keeps the directory
    try:
        os.rmdir(directory)
    except OSError:
        pass


def main() -> None:
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    control = int(sys.argv[1])
    os.set_inheritable(control, False)
    Keeper(control, int(sys.argv[2]), sys.argv[3]).serve()
    os._exit(0)  # the launcher waits for it


if __name__ == "__main__":
    main()
