"""Codes of frames: what was heard on a connection cannot be said again, in another order or back."""

from __future__ import annotations

import pytest

from horovod._net.failures import ProtocolError
from horovod._net.handshake.frames.codes import FrameCodes

KEY = bytes(range(16))


@pytest.mark.parametrize(("order", "good"), [((0, 1), 2), ((0, 0), 1), ((1, 0), 0)])
def test_a_frame_that_was_heard_is_good_once(order: tuple[int, ...], good: int) -> None:
    sender, receiver = FrameCodes(KEY, connector=True), FrameCodes(KEY, connector=False)
    frames = [b"first", b"second"]
    codes = [sender.of_next_sent(frame) for frame in frames]
    for number in order[:good]:
        receiver.check_next_received(frames[number], codes[number])
    for number in order[good : good + 1]:
        with pytest.raises(ProtocolError, match="does not carry the code"):
            receiver.check_next_received(frames[number], codes[number])


def test_a_frame_cannot_be_sent_back_or_changed() -> None:
    sender = FrameCodes(KEY, connector=True)
    code = sender.of_next_sent(b"frame")
    for receiver, frame in (
        (FrameCodes(KEY, connector=True), b"frame"),
        (FrameCodes(KEY, connector=False), b"frume"),
        (FrameCodes(bytes(16), connector=False), b"frame"),
    ):
        with pytest.raises(ProtocolError, match="does not carry the code"):
            receiver.check_next_received(frame, code)
