"""Ranks that leave a job while others do something else."""

from __future__ import annotations

from jobs import horovodrun, on_hosts, run

# Rank 0 sleeps while two things come to it at once: the end of its connection to rank 1, which has left, and the
# goodbye of rank 2. A child of rank 1 holds the connection until then.
_AT_ONCE = """
import os, pathlib, signal, stat, subprocess, threading, time
import numpy as np
import horovod.numpy as hvd
from jobs.report import report
hvd.init()
rank = hvd.rank()
base = pathlib.Path(os.environ["HOROVOD_RENDEZVOUS_DIR"]).parent
child = 0

def mode_of(fd):
    try:
        return os.fstat(fd).st_mode
    except OSError:
        return 0  # it was there for the listing alone

if rank == 1:
    inherited = [int(fd) for fd in os.listdir("/proc/self/fd")]
    sockets = [fd for fd in inherited if stat.S_ISSOCK(mode_of(fd))]
    child = subprocess.Popen(["sleep", "30"], pass_fds=sockets).pid
pids = hvd.allgather(np.array([os.getpid(), child]))
root, child = int(pids[0]), int(pids[3])

def wait_for(name):
    while not (base / name).exists():
        time.sleep(0.01)

if rank == 0:
    wait_for("done")
    hvd.shutdown()
elif rank == 1:
    hvd.shutdown()
    (base / "left").touch()
    wait_for("done")
else:
    wait_for("left")
    time.sleep(0.2)
    os.kill(root, signal.SIGSTOP)
    time.sleep(0.1)
    os.kill(child, signal.SIGKILL)
    leaving = threading.Thread(target=hvd.shutdown)
    leaving.start()
    time.sleep(0.2)
    os.kill(root, signal.SIGCONT)
    begin = time.monotonic()
    leaving.join()
    report("left", took_s=time.monotonic() - begin)
    (base / "done").touch()
"""

# What rank 2 sends to rank 1 takes longer than the root takes to end and leave.
_LATE = """
import os, socket, threading, time
import numpy as np
import horovod.numpy as hvd
from horovod._net.handshake.door import Door
from jobs.report import report

def pump(source, to, late_s):
    while data := source.recv(1 << 16):
        time.sleep(late_s)
        to.sendall(data)
    to.shutdown(socket.SHUT_WR)

def serve(listener, there):
    while True:
        ends = listener.accept()[0], socket.create_connection(there)
        for a, b, late_s in ((*ends, 0.1), (*ends[::-1], 0)):
            a.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            threading.Thread(target=pump, args=(a, b, late_s), daemon=True).start()

address_for = Door.address_for

def behind_a_slow_link(door, pair):
    listener = socket.create_server(("127.0.0.1", 0))
    threading.Thread(target=serve, args=(listener, address_for(door, pair)), daemon=True).start()
    return listener.getsockname()

if os.environ["HOROVOD_RANK"] == "1":
    Door.address_for = behind_a_slow_link
hvd.init()
for _ in range(3):
    assert hvd.allreduce(np.ones(3), op=hvd.Sum, name="x")[0] == 3
report("well", rank=hvd.rank())
"""


def test_what_comes_later_than_the_end_of_the_root_is_waited_for() -> None:
    ended = run(on_hosts((1, 1, 1), "-c", _LATE), patience_s=30)
    assert ended.code == 0 and len(ended.of("well")) == 3, str(ended)


def test_a_goodbye_that_comes_with_the_end_of_another_connection_is_heard() -> None:
    ended = run(on_hosts((1, 1, 1), "-c", _AT_ONCE), patience_s=30)
    assert ended.code == 0 and [event["took_s"] < 2 for event in ended.of("left")] == [True], str(ended)


_SETS = """
import numpy as np
import horovod.numpy as hvd
from horovod._core.life.process_sets import of_members
from jobs.report import report
hvd.init(process_sets="dynamic")
if hvd.rank() < 2:
    made = of_members([0, 1])
hvd.barrier()
if hvd.rank() == 2:
    hvd.shutdown()
    raise SystemExit
try:
    while True:
        hvd.barrier()
except hvd.HorovodInternalError:
    pass
assert hvd.allreduce(np.ones(1), op=hvd.Sum, process_set=made)[0] == 2
for make in (of_members, hvd.add_process_set):
    try:
        make([hvd.rank()])
    except hvd.HorovodInternalError as error:
        report("refused", text=str(error))
"""


def test_sets_are_made_before_a_rank_leaves_and_go_on_without_it() -> None:
    done = run(horovodrun(3, "-c", _SETS))
    texts = [event["text"] for event in done.of("refused")]
    assert done.code == 0 and len(texts) == 4, str(done)
    assert all("rank 2 has shut down" in text and "before the first of them" in text for text in texts), texts
