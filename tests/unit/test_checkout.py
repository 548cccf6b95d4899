"""A checkout hides nothing: what runs in its root uses the horovod that is installed."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.parametrize("how", [["-c", "import horovod; print(horovod.__file__)"], ["-m", "horovod.where"]])
def test_the_installed_package_is_used_in_the_checkouts_root(how: list[str], tmp_path: Path) -> None:
    installed = tmp_path / "site-packages" / "horovod"
    installed.mkdir(parents=True)
    (installed / "__init__.py").touch()
    (installed / "where.py").write_text("import horovod\nprint(horovod.__file__)\n")
    # Python looks into the working directory before it looks here.
    environment = {**os.environ, "PYTHONPATH": str(installed.parent)}
    done = subprocess.run(
        [sys.executable, *how], cwd=ROOT, env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.strip() == str(installed / "__init__.py"), done.stderr
