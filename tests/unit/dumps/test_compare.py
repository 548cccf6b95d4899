"""Which rank is behind, and where: what the dumps of all ranks say together."""

from __future__ import annotations

import dataclasses

from dump_examples import READING, WAITING, allreduce, at, dump, send_or_recv

from horovod._dumps.compare import anybody_behind, compare, ranks_text, without_times


def test_one_rank_skips_an_operation() -> None:
    waiting = {rank: dump(rank, at(60, "step", WAITING), allreduce("grad.w")) for rank in (0, 2, 3)}
    behind = dump(1, at(57, "validate"), finished=(allreduce("grad.b"),))
    assert compare({**waiting, 1: behind}, {}) == [
        "rank 1 has not called allreduce 'grad.w' (waited for by ranks 0, 2, 3 for 61 s); it is in train.py:57, in "
        "validate(), after finishing allreduce 'grad.b'"
    ]
    assert anybody_behind({**waiting, 1: behind})


def test_who_waits_for_the_next_one_has_skipped_it() -> None:
    first = dump(0, at(60, "step", WAITING), allreduce("first", 5))
    others = {rank: dump(rank, at(61, "step", WAITING), allreduce("second", 5)) for rank in (1, 2, 3)}
    assert compare({0: first, **others}, {}) == [
        "rank 0 has not called allreduce 'second' (waited for by ranks 1-3 for 5.0 s); it waits for allreduce 'first' "
        "in train.py:60, in step()",
        "ranks 1-3 have not called allreduce 'first' (waited for by rank 0 for 5.0 s); they wait for allreduce "
        "'second' in train.py:61, in step()",
    ]


def test_a_loop_that_never_ends_is_reported_before_its_victims() -> None:
    dumps = {0: dump(0, at(60, "step", WAITING), allreduce("a")), 1: dump(1, at(60, "step", WAITING), allreduce("a"))}
    dumps[2] = dump(2, at(62, "step", WAITING), allreduce("b"))
    dumps[3] = dump(3, at(57, "load", READING))
    lines = compare(dumps, {})
    assert lines[0] == (
        "rank 3 has not called allreduce 'a', allreduce 'b' (waited for by ranks 0-2 for 61 s); it is in "
        "train.py:57, in load() (there in /usr/lib/python3/socket.py:706, in readinto())"
    )
    assert [line.split(" has")[0].split(" have")[0] for line in lines] == ["rank 3", "ranks 0, 1", "rank 2"]


def test_ranks_that_tell_nothing() -> None:
    dumps = {0: dump(0, at(60, "step", WAITING), allreduce("a", process_set=2), process_sets={2: (0, 1)})}
    assert compare(dumps, {1: "stopped by a signal", 2: "it has ended", 3: "it has ended"}) == [
        "rank 1 may not have called allreduce 'a' (waited for by rank 0 for 61 s); it gave no dump (stopped by a "
        "signal)",
        "ranks 2, 3 gave no dump (it has ended)",
    ]


def test_a_rank_whose_python_cannot_run() -> None:
    stuck = dataclasses.replace(dump(1, at(57, "load")), stacks_only=True)
    dumps = {rank: dump(rank, at(60, "step", WAITING), allreduce("a")) for rank in (0, 2, 3)}
    assert compare({**dumps, 1: stuck}, {}) == [
        "rank 1 may not have called allreduce 'a' (waited for by ranks 0, 2, 3 for 61 s); it is in train.py:57, in "
        "load(), where native code lets no Python run"
    ]


def test_nobody_waits_for_anybody() -> None:
    dumps = {rank: dump(rank, at(57, "load")) for rank in (0, 1, 3)}
    dumps[2] = dump(2, at(60, "step", WAITING), allreduce("a", 0.01))
    assert compare(dumps, {}) == [
        "ranks 0, 1, 3 are in train.py:57, in load()",
        "rank 2 waits for allreduce 'a' in train.py:60, in step()",
    ]
    assert not anybody_behind(dumps)


def test_who_has_finished_an_operation_in_the_meantime_is_not_accused() -> None:
    a, b = allreduce("a"), allreduce("b")
    for before in ((), (a,), (b, a), (a, b, a)):
        waiting = {rank: dump(rank, at(60, "step", WAITING), b, finished=before) for rank in (0, 2, 3)}
        assert not anybody_behind({**waiting, 1: dump(1, at(61, "end"), finished=(*before, b))})
        assert anybody_behind({**waiting, 1: dump(1, at(57, "validate"), finished=before)})
    others = allreduce("b", process_set=5)
    waiting = {rank: dump(rank, at(60, "step", WAITING), b, finished=(a,)) for rank in (0, 2, 3)}
    assert anybody_behind({**waiting, 1: dump(1, at(57, "validate"), finished=(a, others))})


def test_members_of_the_process_set_only() -> None:
    sets = {0: (0, 1, 2, 3), 5: (0, 2)}
    dumps = {0: dump(0, at(60, "step", WAITING), allreduce("a", process_set=5), process_sets=sets)}
    dumps.update({rank: dump(rank, at(57, "load"), process_sets=sets) for rank in (1, 2, 3)})
    (line,) = compare(dumps, {})
    assert line.startswith("rank 2 has not called allreduce 'a' (waited for by rank 0 ")


def test_many_operations_and_many_ranks_stay_short() -> None:
    dumps = {0: dump(0, at(60, "step", WAITING), *(allreduce(f"g{n}", 60 - n) for n in range(9)))}
    dumps.update({rank: dump(rank, at(rank, "load")) for rank in (1, 2, 3)})
    line = compare(dumps, {})[0]
    assert "has not called allreduce 'g0', allreduce 'g1', allreduce 'g2' and 6 more (waited" in line
    everybody = {0: tuple(range(1000))}
    many = {rank: dump(rank, at(rank, "load"), process_sets=everybody) for rank in range(1, 1000)}
    many[0] = dump(0, at(60, "step", WAITING), allreduce("a"), process_sets=everybody)
    assert compare(many, {})[-1] == "... and 983 more lines"


def test_a_rank_without_a_stack() -> None:
    dumps = {0: dump(0, at(60, "step", WAITING), allreduce("a")), 1: dump(1, ())}
    assert compare(dumps, {})[0].endswith("it has not reported its place")


def test_numbers_of_ranks() -> None:
    assert ranks_text([3]) == "rank 3"
    assert ranks_text({0, 2, 3, 4, 9, 10}) == "ranks 0, 2-4, 9, 10"
    assert ranks_text(range(0, 40, 2)).endswith("12, 14, ...")


def test_the_same_story_later() -> None:
    lines = [compare({0: dump(0, (), allreduce("a", s)), 1: dump(1, at(1, "f"))}, {}) for s in (2.0, 61.0)]
    assert lines[0] != lines[1]
    assert without_times(lines[0]) == without_times(lines[1])


def test_hosts_are_named_where_there_are_several() -> None:
    waiting = dump(0, at(60, "step", WAITING), allreduce("a"))
    behind = dataclasses.replace(dump(1, at(57, "validate")), host="there")
    lines = compare({0: waiting, 1: behind}, {2: "no answer", 3: "no answer"}, {2: "there", 3: "elsewhere"})
    assert [line.partition(" has")[0].partition(" may")[0] for line in lines] == [
        "rank 1 (there)",
        "ranks 2, 3 (there, elsewhere)",
    ]
    many = compare({}, dict.fromkeys(range(6), "no answer"), {rank: f"h{rank}" for rank in range(6)})
    assert many == ["ranks 0-5 (h0, h1, h2, h3, ...) gave no dump (no answer)"]


def test_who_could_not_tell_all_is_not_accused() -> None:
    short = dump(1, at(60, "step", WAITING), allreduce("b"), untold=5)
    line = next(line for line in compare({0: dump(0, (), allreduce("a")), 1: short}, {}) if line.startswith("rank 1"))
    assert line.startswith("rank 1 may not have called allreduce 'a'")


def test_a_line_stays_a_line_whatever_names_hold() -> None:
    (line,) = compare({0: dump(0, at(1, "f\n\x1b[2J\udcff"))}, {})
    assert line == "rank 0 is in train.py:1, in f??[2J?()"


def test_a_send_waits_for_one_rank() -> None:
    sent = send_or_recv("send", 1, 3)
    dumps = {rank: dump(rank, at(57, "load")) for rank in (0, 2, 3)}
    (line,) = compare({**dumps, 1: dump(1, at(60, "step", WAITING), sent)}, {})
    assert line == (
        "rank 3 has not called recv #2 from rank 1 to rank 3 (waited for by rank 1 for 61 s); it is in train.py:57, in "
        "load()"
    )
    both = {1: dump(1, at(60, "step", WAITING), sent), 3: dump(3, at(61, "step"), send_or_recv("recv", 1, 3))}
    assert not anybody_behind({**dumps, **both})


def test_a_send_that_has_ended_in_the_meantime() -> None:
    sent, others = send_or_recv("send", 1, 3), send_or_recv("recv", 0, 3)
    waiting = dump(1, at(60, "step", WAITING), sent, finished=(allreduce("a"),))
    received = (allreduce("a"), others, send_or_recv("recv", 1, 3))
    dumps = {rank: dump(rank, at(57, "load")) for rank in (0, 2)}
    assert not anybody_behind({**dumps, 1: waiting, 3: dump(3, at(61, "end"), finished=received)})
    assert anybody_behind({**dumps, 1: waiting, 3: dump(3, at(61, "end"), finished=received[:2])})
