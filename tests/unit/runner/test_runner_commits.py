"""Durable commits that cannot be: refused by the launcher, before a rank starts, as far as it can know."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

import horovod
from horovod._core.errors import InvalidArgumentError, UnsupportedError
from horovod.runner import cli, commits
from horovod.runner.job import Job, effective_settings, make_job


def a_job(where: object, *command: str, **values: object) -> Job:
    given = {"num_proc": 1, "elastic_commit_dir": str(where), **values}
    return make_job(effective_settings(given, "argument", {}), command or (sys.executable,), {}, "/")


def a_key(folder: Path, mode: int = 0o600) -> str:
    path = folder / "key"
    path.write_text("a secret of the test")
    path.chmod(mode)
    return str(path)


def test_no_rank_starts_where_commits_cannot_be_written(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    job = a_job(tmp_path / "file" / "commits", "/bin/touch", str(tmp_path / "started"))
    with pytest.raises(InvalidArgumentError, match="cannot be made: Not a directory"):
        cli.run_job(job)
    assert not (tmp_path / "started").exists()


def not_called() -> None:
    raise AssertionError("a rank was started")


def test_nor_does_a_function(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "commits"
    folder.mkdir()
    folder.chmod(0o777)
    monkeypatch.setenv("HOROVOD_ELASTIC_COMMIT_DIR", str(folder))
    with pytest.raises(InvalidArgumentError, match="can be written by others.*chmod 700"):
        horovod.run(not_called, num_proc=1)


def test_a_dry_run_makes_no_folder(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "commits"
    cli.run_job(a_job(folder, "/bin/true", dry_run=True))
    assert "rank" in capsys.readouterr().out
    assert not folder.exists()


def test_a_key_that_others_can_read(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match="chmod 600"):
        commits.refuse_impossible(a_job(tmp_path / "commits", elastic_commit_key_file=a_key(tmp_path, 0o644)))


@pytest.mark.parametrize("url", ["nosuchscheme://x", "filecache::nosuchscheme://x"])
def test_a_url_of_no_known_kind(tmp_path: Path, url: str) -> None:
    pytest.importorskip("fsspec", reason="fsspec is not installed.")
    key = {"elastic_commit_key_file": a_key(tmp_path)}
    with pytest.raises(InvalidArgumentError, match=f"{url} cannot be reached: Protocol not known: nosuchscheme"):
        commits.refuse_impossible(a_job(url, **key))
    with pytest.raises(InvalidArgumentError, match="cannot be reached"):
        commits.refuse_impossible(a_job(url, hosts="elsewhere.invalid:1", **key))
    commits.refuse_impossible(a_job("memory://x", **key))
    commits.refuse_impossible(a_job(url, "/another/python", **key))  # which may have other packages


def test_a_url_without_fsspec(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "fsspec", None)
    with pytest.raises(UnsupportedError, match="pip install fsspec"):
        commits.refuse_impossible(a_job("s3://bucket/x", elastic_commit_key_file=a_key(tmp_path)))


def test_a_url_without_a_key() -> None:
    with pytest.raises(InvalidArgumentError, match="HOROVOD_ELASTIC_COMMIT_KEY_FILE"):
        commits.refuse_impossible(a_job("s3://bucket/x", "/another/python", hosts="elsewhere.invalid:1"))


@pytest.mark.parametrize("where", [{"hosts": "elsewhere.invalid:1"}, {"host_discovery_script": "./find.sh"}])
def test_folders_of_other_hosts_are_their_own_affair(tmp_path: Path, where: dict[str, str]) -> None:
    (tmp_path / "file").write_text("")
    commits.refuse_impossible(a_job(tmp_path / "file" / "commits", **where))
    commits.refuse_impossible(a_job(tmp_path / "commits", elastic_commit_key_file=str(tmp_path / "no key"), **where))
    assert not (tmp_path / "commits").exists()
