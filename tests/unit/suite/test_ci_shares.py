"""What CI takes of the slow tests (tests/shares.py)."""

from __future__ import annotations

from pathlib import Path

import pytest
import shares

pytest_plugins = ["pytester"]

PLUGIN = Path(__file__).parents[2] / "conftest.py"


def test_four_runs_choose_everything() -> None:
    runs = [shares.chosen(range(10), lambda _: False, seed) for seed in range(700, 704)]
    assert sorted(sum(runs, [])) == list(range(10)) and max(map(len, runs)) == 3


def test_what_has_changed_is_chosen_in_every_run() -> None:
    for seed in range(4):
        assert {4, 5} <= set(shares.chosen(range(10), lambda item: item in (4, 5), seed))


def test_changed_paths_are_files_of_the_repository() -> None:
    changed = shares.changed_paths(shares.ROOT)
    assert any(path.exists() for path in changed) and all(shares.ROOT in path.parents for path in changed)


def test_two_runs_choose_every_sanitizer_and_one_that_changed_cpp_all() -> None:
    unchanged = [shares.native_targets([shares.ROOT / "README.md"], seed) for seed in (7, 8)]
    changed = shares.native_targets([shares.ROOT / "src" / "wire" / "x.cc"], 7)
    assert sorted(sum(unchanged, [])) == sorted(changed) and all(unchanged)


def test_a_changed_script_chooses_the_tests_that_name_it(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    files = [tmp_path / f"test_{number}.py" for number in range(6)]
    for file in files:
        file.write_text("def test(): pass\n")
    files[1].write_text('JOB = WORKERS / "some_worker.py"\n')
    files[3].write_text('JOB = "tests/workers/some_worker.py"\n')
    files[4].write_text('JOB = "other_some_worker.py"\nSAME_NAME = "spawn.py"\n')
    module = shares.ROOT / "python" / "horovod" / "spawn.py"  # no script
    changed = {files[5], tmp_path / "workers" / "some_worker.py", module}
    monkeypatch.setattr(shares, "changed_paths", lambda _: changed)
    monkeypatch.setenv("HVD_TEST_SEED", "6")
    assert shares.some_files([*files, files[2]]) == [files[number] for number in (1, 2, 3, 5)]


@pytest.mark.parametrize("option", [(), ("--some",)])
def test_the_option_leaves_files_out(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, option: tuple[str, ...]
) -> None:
    monkeypatch.setenv("HVD_TEST_SEED", "1")
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")
    pytester.makeconftest(PLUGIN.read_text())
    for number in range(6):
        pytester.makepyfile(**{f"test_{number}": "def test_a(): pass\ndef test_b(): pass\n"})
    result = pytester.runpytest_inprocess("-q", "-p", "no:cacheprovider", *option)
    result.assert_outcomes(**({"passed": 4, "deselected": 8} if option else {"passed": 12}))
