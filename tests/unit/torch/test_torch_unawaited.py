"""What is kept for C++ that waits for works, where torch does not keep them."""

from __future__ import annotations

import pytest
import torch.distributed as dist

from horovod.torch.distributed import unawaited


def test_works_are_kept_until_they_are_waited_for_the_newest_of_many() -> None:
    kept = unawaited.Unawaited()
    works = [dist.Work() for _ in range(1100)]
    for work in works:
        kept.keep(work)
    assert list(kept._works.values()) == works[-1024:]
    kept.release(works[-1])
    kept.release(works[0])
    assert list(kept._works.values()) == works[-1024:-1]


def test_a_work_that_answers_by_torchs_own_method_is_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lost(dist.Work):
        """As C++ has it when its Python part is gone."""

    monkeypatch.setattr(unawaited, "_Work", Lost)
    assert not unawaited.torch_keeps_works()
