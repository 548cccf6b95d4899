"""The connections to a board: each gets all that stands, a Ready, then each new entry, and brings what is posted.

Used by kept_board, and by the agent of a host for its ranks (`horovod.runner.remote.host_side.board`).
"""

from __future__ import annotations

from typing import Callable, Final, Optional

from horovod._net.failures import ProtocolError
from horovod._net.handshake.frames import messages
from horovod._net.handshake.frames.links import Link, LinkClosedError
from horovod._net.handshake.frames.watch import Watch
from horovod._net.meeting.entries import Standing, key_of, reader_of

_POSTS: Final = frozenset({messages.FORMS[messages.Post].kind})


class Readers:
    """See the head of the file.

    Args:
        watch: wakes for them.
        post: takes an entry that one of them posts.
        lost: takes the number of one that has gone; and why, if it was cut off.
        most_unread: bytes of new entries for one that does not read them; None: no limit.

    Attributes:
        standing: the entries that stand.
        number_of: each connection: who reads there.
    """

    def __init__(
        self,
        watch: Watch,
        post: Callable[[str], None],
        lost: Callable[[int, str], None],
        most_unread: Optional[int] = None,
    ) -> None:
        self._watch = watch
        self._post = post
        self._lost = lost
        self._most_unread = most_unread
        self._stood_bytes: dict[Link, int] = {}  # that were to be sent when it came
        self.standing = Standing()
        self.number_of: dict[Link, int] = {}

    def add(self, link: Link, number: int, *first: messages.AnyMessage) -> None:
        """One more reader, who hears these messages first."""
        link.reader.allowed = _POSTS
        link.in_turns = True
        self.number_of[link] = number
        self._watch.add(link)
        heard = (text for text in self.standing if reader_of(text) in (None, number))
        self.send(link, *first, *messages.together(heard), messages.Ready())
        self._stood_bytes[link] = link.queued_bytes

    def send(self, link: Link, *every: messages.AnyMessage) -> None:
        """Sends a reader new entries."""
        try:
            for message in every:
                link.send(message)
            self._watch.update(link)
        except LinkClosedError:
            return  # its end is about to be heard
        most = self._most_unread
        if most is not None and link.queued_bytes > most + self._stood_bytes.get(link, link.queued_bytes):
            self.drop(link, "It does not read what is sent.")

    def hear(self, link: Link) -> None:
        """Takes what has come."""
        try:
            link.flush()
            for message in link.receive():
                if not isinstance(message, messages.Post) or key_of(message.text) is None:
                    raise ProtocolError("Its post does not have the form key=value.")
                self._post(message.text)
            self._watch.update(link)
        except LinkClosedError:
            self.drop(link)
        except ProtocolError as error:
            self.drop(link, str(error))

    def drop(self, link: Link, why: str = "") -> None:
        """Ends the connection. May be called twice."""
        if link in self.number_of:
            number = self.number_of.pop(link)
            self._stood_bytes.pop(link, None)
            self._watch.remove(link)
            link.close()
            self._lost(number, why)
