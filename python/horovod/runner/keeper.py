"""A small process between the launcher and the ranks of one host: starts them, says how they end, leaves nothing.

Started by `process` as a script of its own (`python -I -S keeper.py CONTROL_FD LAUNCHER_PID DIRECTORY`), so it imports
the standard library only. It has one thread, because the parent-death signal that it gives the ranks follows the parent
*thread*; it is a child subreaper, so that what a rank starts and abandons stays its descendant and can be found. When
the launcher is gone, even by SIGKILL, it kills every descendant and removes the job's directory. It decides nothing
else: when to send which signal is the launcher's business.

It inherits the descriptor that holds the lock on the job's directory, so that nobody takes the directory for a dead
job's while the keeper is at work.

Messages are lines of JSON over a socket pair. In: {"start": {...}}, {"signal": n, "ranks": [...]}, {"finish": true}.
Out: {"started": rank, "pid": p}, {"refused": rank, "errno": n}, {"exited": rank, "status": s, "at": monotonic seconds,
"how": words}, {"done": true}.
"""

from __future__ import annotations

import contextlib
import ctypes
import errno
import json
import os
import resource
import select
import signal
import socket
import sys
import time
from typing import Any

_IGNORED = (signal.SIGINT, signal.SIGTERM, signal.SIGHUP, signal.SIGPIPE)
_PR_SET_PDEATHSIG = 1
_PR_SET_CHILD_SUBREAPER = 36
_LEFTOVER_GRACE_S = 0.4  # for helpers of the ranks that clean up when their rank is gone
_CLEANER_GRACE_S = 2.0  # for those that clean up when everybody else is gone
_KILL_PATIENCE_S = 5.0
# What these know nobody else does: the names of a dead rank's semaphores and shared memory. They remove them and go as
# soon as no process is left that holds a pipe or a connection to them, such as a loader's worker.
# A keeper of a job that a rank has started cleans up after that job's ranks.
_CLEANERS = (b"multiprocessing.resource_tracker", b"torch_shm_manager", b"/horovod/runner/keeper.py")


class Keeper:
    """See the head of the file.

    Args:
        control: connected socket to the launcher.
        launcher_pid: whose end means the end of the job.
        directory: of the job, to be removed in the end.
    """

    def __init__(self, control: socket.socket, launcher_pid: int, directory: str) -> None:
        self._control = control
        self._libc = ctypes.CDLL(None, use_errno=True)
        self._libc.prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
        self._poller = select.epoll()
        self._poller.register(control.fileno(), select.EPOLLIN)
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
        self._received = b""

    def serve(self) -> None:
        """Runs until the launcher says "finish" or is gone."""
        going_on = os.getppid() == self._launcher_pid
        while going_on:
            # epoll reports descriptors in the order in which they became ready: the order in which ranks died.
            events = [fd for fd, _ in self._poller.poll()]
            for fd in events:
                if fd in self._pid_of_pidfd:
                    self._reap_rank(fd)
            if self._wake_fd in events:
                self._reap_others()
            if self._launcher_fd in events:
                going_on = False
            if self._control.fileno() in events:
                going_on = self._take_commands() and going_on
        self._end()

    def _take_commands(self) -> bool:
        try:
            data = self._control.recv(1 << 20)
        except OSError:
            data = b""
        if not data:
            return False
        *lines, self._received = (self._received + data).split(b"\n")
        for line in lines:
            message = json.loads(line)
            if "start" in message:
                self._start(message["start"])
            elif "signal" in message:
                self._signal(message["signal"], set(message["ranks"]))
            else:
                return False
        return True

    def _start(self, job: dict[str, Any]) -> None:
        os.set_inheritable(job["lock"], False)
        for rank in job["ranks"]:
            for fd in (rank["stdout"], rank["stderr"], *rank["inherited"]):
                os.set_inheritable(fd, False)
            rank["env"] = {**job["env"], **rank["env"]}
        for rank in job["ranks"]:
            try:
                pid, error = self._fork(rank, job)
            except OSError as failure:  # no further process, or no further descriptor
                pid, error = 0, failure.errno or errno.EIO
            for fd in {rank["stdout"], rank["stderr"], *rank["closed"]}:
                os.close(fd)
            if error:
                if pid:
                    os.waitpid(pid, 0)
                self._tell({"refused": rank["rank"], "errno": error, "forked": bool(pid)})
                continue
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
                os.dup2(os.open(os.devnull, os.O_RDONLY), 0)
                os.dup2(rank["stdout"], 1)
                os.dup2(rank["stderr"], 2)
                for fd in rank["inherited"]:
                    os.set_inheritable(fd, True)
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
                with contextlib.suppress(OSError):  # it ended a moment ago; its exit is on its way
                    os.killpg(pid, number)

    def _reap_rank(self, pidfd: int) -> None:
        pid = self._pid_of_pidfd.pop(pidfd)
        self._poller.unregister(pidfd)
        os.close(pidfd)
        _, status = os.waitpid(pid, 0)
        self._report(pid, status)

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
            pid, status = os.waitpid(info.si_pid, 0)
            self._report(pid, status)

    def _report(self, pid: int, status: int) -> None:
        rank = self._rank_of_pid.pop(pid, None)
        if rank is not None:
            how = f"was killed by signal {status & 0x7F}" if status & 0x7F else f"exited with code {status >> 8}"
            self._leave_word(rank, how)
            self._tell({"exited": rank, "status": status, "at": time.monotonic(), "how": how})

    def _leave_word(self, rank: int, how: str) -> None:
        """For ranks that wait for this one in hvd.init() and have no connection to it
        (`horovod._net.meeting.deaths`)."""
        draft = os.path.join(self._directory, f"draft.{rank}")
        with contextlib.suppress(OSError):  # somebody has removed the directory: nobody can wait there
            with open(os.open(draft, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w", encoding="ascii") as file:
                file.write(how)
            os.rename(draft, os.path.join(self._directory, f"ended.{rank}"))

    def _tell(self, message: dict[str, Any]) -> None:
        with contextlib.suppress(OSError):  # the launcher is gone; the loop will see that
            self._control.sendall(json.dumps(message).encode() + b"\n")

    def _end(self) -> None:
        for pid in list(self._rank_of_pid):
            with contextlib.suppress(OSError):
                os.kill(pid, signal.SIGKILL)
        deadline = time.monotonic() + _LEFTOVER_GRACE_S
        while _reap_all() and time.monotonic() < deadline:
            select.select([self._wake_fd], [], [], 0.02)
        spared_until = time.monotonic() + _CLEANER_GRACE_S
        deadline = time.monotonic() + _KILL_PATIENCE_S
        while _reap_all() and time.monotonic() < deadline:
            for pid in _descendants(os.getpid()):
                if time.monotonic() < spared_until and _is_cleaner(pid):
                    continue
                with contextlib.suppress(OSError):
                    os.kill(pid, signal.SIGKILL)
            time.sleep(0.005)
        _remove(self._directory)
        with contextlib.suppress(OSError):  # other jobs of this user are in it
            os.rmdir(os.path.dirname(self._directory))
        self._tell({"done": True})


def _pidfd(pid: int) -> int:
    try:
        return os.pidfd_open(pid)
    except (AttributeError, OSError):
        return -1  # an old kernel: SIGCHLD and the control socket still tell, without the order of deaths


def _reap_all() -> bool:
    """Reaps what has ended; says whether there are children left."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        return False
    return True


def _descendants(root: int) -> list[int]:
    children: dict[int, list[int]] = {}
    for name in os.listdir("/proc"):
        if name.isdecimal():
            try:
                with open(f"/proc/{name}/stat", "rb") as file:
                    parent = int(file.read().rpartition(b")")[2].split()[1])
            except (OSError, IndexError, ValueError):
                continue
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


def _remove(directory: str) -> None:
    try:
        for entry in os.scandir(directory):
            if entry.is_dir(follow_symlinks=False):
                _remove(entry.path)
            else:
                os.unlink(entry.path)
        os.rmdir(directory)
    except OSError:
        pass  # somebody else removed it, or the file system is gone: nothing more to be done from here


def main() -> None:
    for number in _IGNORED:
        signal.signal(number, signal.SIG_IGN)
    control = socket.socket(fileno=int(sys.argv[1]))
    control.set_inheritable(False)
    Keeper(control, int(sys.argv[2]), sys.argv[3]).serve()


if __name__ == "__main__":
    main()
