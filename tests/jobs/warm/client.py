"""Stands for a warm rank in its launcher's eyes: `client.py ADDRESS SCRIPT WORDS...`, or `-c` or `-m` as Python takes
them.

Hands its streams, words, folder and environment to the server at the address, passes on the signals that it gets, and
ends as the rank ends. It must start quickly: `python -I -S`, and few imports.
"""

import contextlib
import json
import os
import resource
import signal
import socket
import sys

COLD = b"cold"
PASSED_ON = [signal.SIGHUP, signal.SIGINT, signal.SIGQUIT, signal.SIGTERM, signal.SIGUSR1, signal.SIGUSR2]


@contextlib.contextmanager
def brief(address):
    """The address in a form that fits into the 108 bytes of a Unix socket's, however deep its folder is."""
    folder = os.open(os.path.dirname(address), os.O_PATH | os.O_DIRECTORY)
    try:
        yield f"/proc/self/fd/{folder}/{os.path.basename(address)}"
    finally:
        os.close(folder)


def words_of(address):
    """The last words that the server has written."""
    with open(f"{address}.log", errors="replace") as log:
        return "Its last words:\n" + log.read()[-2000:]


def main(address, *words):
    server = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    try:
        with brief(address) as path:
            server.connect(path)
    except OSError as error:
        sys.exit(f"There is no server of warm ranks at {address}: {error}. {words_of(address)}")
    request = {"words": words, "folder": os.getcwd(), "environ": dict(os.environ)}
    socket.send_fds(server, [json.dumps(request).encode()], [0, 1, 2])

    def pass_on(number, _):
        with contextlib.suppress(OSError):  # the rank has ended
            server.send(b"%d" % number)

    for number in PASSED_ON:  # a signal before this ends the client, and the rank with it
        signal.signal(number, pass_on)
    answer = b""
    for _ in range(2):  # a signal that the server has not read hides the answer from the first call
        try:
            answer = server.recv(64)
            break
        except ConnectionResetError:
            pass
    if answer == COLD:
        os.execv(sys.executable, [sys.executable, *words])
    if not answer:
        sys.exit(f"The server of warm ranks at {address} has ended. {words_of(address)}")
    code = int(answer)
    if code < 0:
        if -code in PASSED_ON:
            signal.signal(-code, signal.SIG_DFL)
        resource.setrlimit(resource.RLIMIT_CORE, (0, 0))  # the rank's is enough
        os.kill(os.getpid(), -code)
    os._exit(code)


if __name__ == "__main__":
    main(*sys.argv[1:])
