"""The tf.data service: its pure parts, its config file, its compute service and its guard. No other process."""

from __future__ import annotations

import contextlib
import dataclasses
import errno
import json
import os
import pathlib
import socket
import stat
import threading
import time
from typing import Any

import numpy as np
import pytest

tf = pytest.importorskip("tensorflow", reason="TensorFlow is not installed.")

from data_services import service  # noqa: E402

from horovod._core.errors import (  # noqa: E402
    CollectiveTimeoutError,
    InvalidArgumentError,
    PeerLostError,
    ShutdownError,
)
from horovod._net.handshake.frames import auth, messages  # noqa: E402
from horovod._net.handshake.frames.codes import FrameCodes  # noqa: E402
from horovod.tensorflow.data import addresses, attendance, checks  # noqa: E402
from horovod.tensorflow.data import config as config_module  # noqa: E402
from horovod.tensorflow.data.compute_service import (  # noqa: E402
    TfDataServiceConfig,
)
from horovod.tensorflow.data.guard import Alarm  # noqa: E402
from horovod.tensorflow.data.registry import Registry  # noqa: E402

CONFIG = TfDataServiceConfig(2, 3, "compute", {"lo": [("127.0.0.1", 4711)]}, bytes(range(32)), 7)
distribute = tf.data.experimental.service.distribute


# ---- config file


def test_config_survives_dict_json_and_file(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "compute.json")
    assert TfDataServiceConfig.from_dict(json.loads(json.dumps(CONFIG.to_dict()))) == CONFIG
    CONFIG.write(path)
    assert TfDataServiceConfig.read(path) == CONFIG
    assert TfDataServiceConfig.read(path, wait_for_file_creation=True) == CONFIG
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o600
    assert os.listdir(tmp_path) == ["compute.json"]


def test_config_takes_integers_of_numpy() -> None:
    config = dataclasses.replace(CONFIG, dispatchers=np.int64(2))
    assert config == CONFIG and type(config.dispatchers) is int


def test_config_is_frozen_and_hides_its_key() -> None:
    with pytest.raises(dataclasses.FrozenInstanceError):
        CONFIG.timeout = 3  # type: ignore[misc]
    assert "key" not in repr(CONFIG) and CONFIG.to_dict()["key"] not in repr(CONFIG)
    without = {name: value for name, value in CONFIG.to_dict().items() if name != "timeout"}
    assert TfDataServiceConfig.from_dict(without).timeout == 60


@pytest.mark.parametrize(
    "change",
    [
        {"dispatchers": 0}, {"dispatchers": True}, {"workers_per_dispatcher": "2"}, {"dispatcher_side": "both"},
        {"addresses": {}}, {"addresses": {"lo": [["127.0.0.1", 0]]}}, {"addresses": {"lo": [["127.0.0.1"]]}},
        {"key": "AAAA"}, {"key": "not base64!"}, {"timeout": 0}, {"more": 1}, {"addresses": [1]},
    ],
)  # fmt: skip
def test_a_wrong_config_is_refused(change: dict[str, Any], tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidArgumentError):
        TfDataServiceConfig.from_dict({**CONFIG.to_dict(), **change})


@pytest.mark.parametrize("text", ["", "{", "[]", "3", '{"dispatchers": 1}', "[" * 10_000])
def test_a_file_that_is_no_config_is_refused(text: str, tmp_path: pathlib.Path) -> None:
    path = tmp_path / "compute.json"
    path.write_text(text)
    path.chmod(0o600)
    with pytest.raises(InvalidArgumentError, match="compute.json is not a compute config.*Delete it"):
        TfDataServiceConfig.read(str(path))


def test_a_file_that_others_can_read_is_refused(tmp_path: pathlib.Path) -> None:
    path = tmp_path / "compute.json"
    CONFIG.write(str(path))
    path.chmod(0o640)
    with pytest.raises(InvalidArgumentError, match="0640, open to other users"):
        TfDataServiceConfig.read(str(path))


def test_a_missing_file_and_a_missing_folder(tmp_path: pathlib.Path) -> None:
    with pytest.raises(InvalidArgumentError, match="There is no compute config"):
        TfDataServiceConfig.read(str(tmp_path / "compute.json"))
    with pytest.raises(InvalidArgumentError, match="cannot be written: No such file or directory"):
        CONFIG.write(str(tmp_path / "no" / "compute.json"))


def test_waiting_for_the_file(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "compute.json")
    threading.Timer(0.3, CONFIG.write, [path]).start()
    assert TfDataServiceConfig.read(path, wait_for_file_creation=True) == CONFIG


def test_a_compute_job_that_never_starts(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOROVOD_START_TIMEOUT", "0.3")
    with pytest.raises(CollectiveTimeoutError, match=r"did not appear within 0.3 s; the compute job has not started"):
        TfDataServiceConfig.read(str(tmp_path / "compute.json"), wait_for_file_creation=True)


def test_an_old_file_of_a_dead_job_is_not_taken_for_a_new_one(
    tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HOROVOD_START_TIMEOUT", "5")
    path = str(tmp_path / "compute.json")
    CONFIG.write(path)
    os.utime(path, (time.time() - 3600,) * 2)
    fresh = dataclasses.replace(CONFIG, key=bytes(32))
    threading.Timer(0.5, fresh.write, [path]).start()
    assert TfDataServiceConfig.read(path, wait_for_file_creation=True) == fresh
    monkeypatch.setenv("HOROVOD_START_TIMEOUT", "0.3")
    os.utime(path, (time.time() - 3600,) * 2)
    with pytest.raises(CollectiveTimeoutError, match="was left by a compute job that has ended"):
        TfDataServiceConfig.read(path, wait_for_file_creation=True)


def test_only_the_own_file_is_removed(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "compute.json")
    CONFIG.write(path)
    config_module.remove_own(path, dataclasses.replace(CONFIG, key=bytes(32)))
    assert os.path.exists(path)
    config_module.remove_own(path, CONFIG)
    assert not os.path.exists(path)


def test_the_file_of_a_job_that_was_killed_is_removed_once_it_does_not_answer(tmp_path: pathlib.Path) -> None:
    path = str(tmp_path / "compute.json")
    config_module.remove_ended(path)
    with service() as made:
        made.config.write(path)
        ending = threading.Thread(target=config_module.remove_ended, args=(path,))
        ending.start()
        ending.join(0.5)
        assert ending.is_alive() and os.path.exists(path)
    ending.join(20)
    assert not ending.is_alive() and not os.path.exists(path)


def test_the_file_of_a_job_that_lives_stays(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(config_module, "_ENDING_S", 0.0)
    path = str(tmp_path / "compute.json")
    with service() as made:
        made.config.write(path)
        config_module.remove_ended(path)
        assert TfDataServiceConfig.read(path) == made.config
    config_module.remove_ended(path, config_module.key_in(path))  # of an earlier job, which does not answer from here
    assert os.path.exists(path)


# ---- pure parts


def test_counts() -> None:
    assert checks.workers_per_dispatcher(4, 2) == 2
    with pytest.raises(ValueError, match="4 ranks cannot give each of 3 dispatchers.*-np a multiple of 3"):
        checks.workers_per_dispatcher(4, 3)
    with pytest.raises(ValueError, match="at least 1 dispatcher"):
        checks.workers_per_dispatcher(4, 0)
    with pytest.raises(InvalidArgumentError, match="has 3 ranks, but.*-np 4"):
        checks.check_compute_size(3, 2, 2)


def test_which_dispatcher_serves_whom() -> None:
    assert [checks.dispatcher_of(1, rank, 5) for rank in range(5)] == [0] * 5
    assert [checks.dispatcher_of(3, rank, 3) for rank in range(3)] == [0, 1, 2]
    assert checks.dispatcher_of(3, 2, None) == 2
    for dispatchers, rank, size in ((2, 0, 3), (3, 0, 2), (2, 2, None), (1, 2, 2), (1, -1, None)):
        with pytest.raises(InvalidArgumentError):
            checks.dispatcher_of(dispatchers, rank, size)


def test_where_the_service_listens() -> None:
    def decide(one_host: bool, hostname: str, *nics: str) -> tuple[str, str]:
        names = {"here": "127.0.1.1", "node": "10.0.0.1"}
        return addresses.address_to_listen_on(one_host, hostname, nics, names.__getitem__, {"eth0": "10.9.9.9"}.get)

    assert decide(True, "") == decide(True, "localhost") == ("lo", "127.0.0.1")
    assert decide(True, "here") == ("lo", "127.0.1.1")
    assert decide(True, "node") == decide(False, "node") == ("", "10.0.0.1")
    assert decide(True, "", "eth0") == decide(False, "here", "eth0") == ("eth0", "10.9.9.9")
    for hostname in ("", "here"):
        with pytest.raises(InvalidArgumentError, match="--network-interface"):
            decide(False, hostname)
    assert addresses.address_of_interface("lo") == "127.0.0.1"
    with pytest.raises(InvalidArgumentError, match="'nope0' has no IPv4 address"):
        addresses.address_of_interface("nope0")


def test_registry_tells_deaths_from_goodbyes() -> None:
    registry = Registry(1, 2, "training")
    registry.join(5, "training", 0, "a")
    registry.join(6, "training", 1, "b")
    registry.announce_dispatcher(5, 0, "x:1")
    registry.lost(6)
    assert registry.outcome is None
    registry.lost(5)
    assert registry.outcome is not None and registry.outcome[0] == "failed"
    assert "Training rank 0 (a), which ran a dispatcher, died" in registry.outcome[1]

    registry = Registry(1, 2, "compute")
    registry.join(5, "compute", 1, "c")
    registry.leave(5, "no disk")
    assert registry.outcome == ("failed", "Compute rank 1 (c) of the data service ended early: no disk")


def test_registry_refuses_what_does_not_fit() -> None:
    registry = Registry(2, 2, "compute")
    compute, training = 5, 6
    registry.join(compute, "compute", 0, "a")
    registry.join(training, "training", 0, "b")
    registry.announce_dispatcher(compute, 0, "x:1")
    for call in (
        lambda: registry.join(7, "compute", 0, "again"),
        lambda: registry.join(7, "compute", 4, "too many"),
        lambda: registry.join(7, "guest", 0, "who"),
        lambda: registry.announce_dispatcher(training, 1, "wrong side"),
        lambda: registry.announce_dispatcher(compute, 0, "twice"),
        lambda: registry.announce_dispatcher(compute, 2, "too many"),
        lambda: registry.announce_worker(99, 1),
        lambda: registry.arrive(training, "t", 0),
    ):
        with pytest.raises(InvalidArgumentError):
            call()


# ---- compute service


def test_a_stranger_is_refused_and_the_service_goes_on() -> None:
    with service() as made:
        (host, port) = made.config.addresses["lo"][0]
        wrong = dataclasses.replace(made.config, key=bytes(32))
        with pytest.raises(PeerLostError, match="is not the one that wrote the config.*does not hold the key"):
            wrong.compute_client().shutdown()
        hello = messages.frame(auth.Connector(wrong.compute_client()._credentials, 1, messages.ROLE_BOARD).hello)
        proof = messages.frame(messages.Proof(bytes(32)))
        for bytes_sent in (b"GET / HTTP/1.0\r\n\r\n", hello + proof, b"HVDN" + bytes(99)):
            with socket.create_connection((host, port), 5) as sock:
                sock.settimeout(5)
                sock.sendall(bytes_sent)
                received = b""
                try:
                    while piece := sock.recv(4096):
                        received += piece
                except ConnectionResetError:
                    pass
                assert len(received) in (0, len(messages.frame(messages.Challenge(bytes(32), bytes(32)))))
        made.config.compute_client().join("training", 0).close()


def test_silent_connections_keep_nobody_out() -> None:
    with service() as made, contextlib.ExitStack() as silent:
        for _ in range(150):
            silent.enter_context(socket.create_connection(made.config.addresses["lo"][0], 5))
        start = time.monotonic()
        made.config.compute_client().join("training", 0).close()
        assert time.monotonic() - start < 5


def test_a_lack_of_descriptors_passes(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    with service() as made:
        lacks = [OSError(errno.EMFILE, "too many open files"), OSError(errno.ENFILE, "and in the system")]
        accept = socket.socket.accept

        def accept_later(self: socket.socket) -> Any:
            if lacks:
                raise lacks.pop()
            return accept(self)

        monkeypatch.setattr(socket.socket, "accept", accept_later)
        made.config.compute_client().join("training", 0).close()
        assert not lacks
        deadline = time.monotonic() + 20
        while "compute service, connecting: connections cannot be accepted at the moment" not in caplog.text:
            assert time.monotonic() < deadline, caplog.text
            time.sleep(0.01)


def test_a_child_that_ends_leaves_its_parent_present() -> None:
    with service() as made:
        mine = attendance.lasting(made.config, 0)
        if (child := os.fork()) == 0:
            mine.close()  # as at its exit
            os._exit(0)
        os.waitpid(child, 0)
        mine._thread.join(0.3)
        assert mine.problem is None and made._presence._registry.present("training", besides=-1)
        mine.close()


def test_a_service_that_closes_connections_is_not_taken_for_an_old_one() -> None:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        config = dataclasses.replace(CONFIG, addresses={"lo": [listener.getsockname()]})
        came: list[float] = []

        def close_all() -> None:
            with contextlib.suppress(OSError):
                while True:
                    wire, _ = listener.accept()
                    came.append(time.monotonic())
                    wire.close()

        threading.Thread(target=close_all, daemon=True).start()
        with pytest.raises(PeerLostError, match="takes connections, but .*too many connections that say nothing"):
            config.compute_client().shutdown()
        assert len(came) > 4
        listener.shutdown(socket.SHUT_RDWR)


def test_a_frame_without_the_right_code_is_not_parsed(caplog: pytest.LogCaptureFixture) -> None:
    with service() as made:
        forger, trainer = (made.config.compute_client().join("training", rank) for rank in range(2))
        forger._link.protect(FrameCodes(bytes(16), connector=True))  # authenticated, then forging
        with pytest.raises(PeerLostError, match="stopped answering"):
            forger.end("shutdown", "forged")
        trainer.close()
        assert trainer._registry.outcome is None
        assert "does not carry the code of this connection" in caplog.text


@pytest.mark.parametrize("command", [(), ("dance",), ("dispatcher",), ([],), ("meet", {}, 1), ("retire", 1, 2)])
def test_a_malformed_request_is_refused(command: tuple[Any, ...]) -> None:
    with service() as made:
        presence = made.config.compute_client().join("training", 0)
        with pytest.raises(InvalidArgumentError, match="cannot read this request"):
            presence._do(*command)
        presence.close()


def test_a_long_reason_is_cut() -> None:
    with service(workers=2) as made:
        leaving, trainer = (
            made.config.compute_client().join("compute", 1),
            made.config.compute_client().join("training", 0),
        )
        leaving.close("\u20ac" * 10_000)
        kind, why = trainer.wait_for_end()
        assert kind == "failed" and "ended early: \u20ac\u20ac" in why and len(why) < 1000


def test_a_stale_config_says_so() -> None:
    with service() as made:
        config = made.config
    with pytest.raises(PeerLostError, match=r"does not answer.*refused.*left by an earlier compute job.*Start"):
        tf.data.Dataset.range(3).send_to_data_service(config, 0, 1)


@pytest.mark.slow
def test_what_never_comes_is_named_in_time() -> None:
    with service(workers=2, timeout=1) as made:
        client = made.config.compute_client()
        compute, trainer = client.join("compute", 0), client.join("training", 1)
        with pytest.raises(CollectiveTimeoutError, match="Dispatcher 0 was not started by the compute job within 1 s"):
            trainer.wait_for_dispatcher(0)
        compute.announce_worker(compute.announce_dispatcher(0, "x:1"))
        with pytest.raises(CollectiveTimeoutError, match="Dispatcher 0 lacks 1 of its 2 workers after 1 s"):
            trainer.wait_for_workers(0)
        with pytest.raises(CollectiveTimeoutError, match="Training ranks 0, 2 of 3 did not call it within 1 s"):
            trainer.meet("it", 3)


def test_who_comes_later_finds_what_has_happened() -> None:
    with service() as made:
        compute = made.config.compute_client().join("compute", 0)
        announced = compute.announce_dispatcher(0, "x:1")
        compute.announce_worker(announced)
        made.config.compute_client().join("training", 1).close()
        trainer = made.config.compute_client().join("training", 0)
        assert trainer.wait_for_dispatcher(0) == announced and announced.address == "x:1"
        trainer.wait_for_workers(0)
        assert trainer.meet("it", 1) > announced.generation


def test_a_meeting_that_is_complete_is_not_given_up() -> None:
    registry = Registry(1, 1, "compute")
    for rank in range(2):
        registry.join(rank, "training", rank, "here")
        meeting = registry.arrive(rank, "it", 2)
    registry.give_up(0, "it")
    assert meeting.number is not None and meeting.missing() == []


def test_a_death_reaches_everybody_who_waits() -> None:
    with service(workers=2, timeout=30) as made:
        client = made.config.compute_client()
        victim, trainer = client.join("compute", 1), client.join("training", 0)
        threading.Timer(0.3, victim.hang_up).start()  # as the kernel does for a killed process
        with pytest.raises(PeerLostError, match=r"Compute rank 1 \(.*pid \d+\) of the data service died"):
            trainer.wait_for_dispatcher(0)
        assert trainer.wait_for_end()[0] == "failed"


def test_a_dead_service_is_noticed() -> None:
    with service() as made:
        trainer = made.config.compute_client().join("training", 0)
        made._board.stop()
        assert "rank 0 of the compute job, which runs it, is gone" in trainer.wait_for_end()[1]
        with pytest.raises(PeerLostError, match="stopped answering .it has ended.; its rank 0 has probably died"):
            trainer.wait_for_dispatcher(0)


def test_a_shutdown_is_heard_from_a_service_that_is_gone() -> None:
    with service() as made:
        trainer = made.config.compute_client().join("training", 0)
        made.config.compute_client().shutdown()
        made.close()
        trainer.wait_for_others_to_leave()
        assert trainer.wait_for_end()[0] == "shutdown"


def test_shutdown_may_be_called_twice() -> None:
    with service() as made:
        client = made.config.compute_client()
        trainer = client.join("training", 0)
        client.shutdown()
        client.shutdown()
        with pytest.raises(ShutdownError, match="The shutdown was requested by"):
            trainer.wait_for_dispatcher(0)


# ---- guard


def test_the_guard_changes_no_element() -> None:
    alarm = Alarm()
    for dataset in (
        tf.data.Dataset.range(1000).batch(7),
        tf.data.Dataset.range(5).map(lambda x: (x,)),
        tf.data.Dataset.range(5).map(lambda x: {"a": x, "b": (x, tf.as_string(x))}),
        tf.data.Dataset.range(0),
    ):
        guarded = alarm.guard(dataset)
        assert guarded.element_spec == dataset.element_spec
        assert str(list(guarded.as_numpy_iterator())) == str(list(dataset.as_numpy_iterator()))
    assert len(list(alarm.guard(tf.data.Dataset.range(5).repeat()).take(9))) == 9


def test_the_guard_ends_a_wait() -> None:
    alarm = Alarm()
    block = tf.queue.FIFOQueue(1, [tf.int64], shapes=[[]])
    iterator = iter(alarm.guard(tf.data.Dataset.range(1).map(lambda _: block.dequeue())).prefetch(1))
    threading.Timer(0.3, alarm.ring, ["rank 7 died"]).start()
    with pytest.raises(tf.errors.InvalidArgumentError, match="rank 7 died"):
        next(iterator)
    with pytest.raises(tf.errors.InvalidArgumentError, match="rank 7 died"):
        next(iter(alarm.guard(tf.data.Dataset.range(3).map(lambda _: block.dequeue()))))
    block.close(cancel_pending_enqueues=True)
