"""The name "horovod" in torch.distributed, which `import torch` learns from the installed package."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import tomllib

ROOT = Path(__file__).resolve().parents[3]
ENTRY = "horovod._torch_backend:register"
PROGRAM = """
import sys
import torch
import torch.distributed as dist
assert "horovod" in dist.Backend.backend_list, "the name is not known"
found = [name for name in sys.modules if name.startswith("horovod")]
assert sorted(found) == ["horovod", "horovod._torch_backend"], found
dist.init_process_group("horovod", init_method="horovod://")
assert dist.get_backend() == "horovod"
dist.destroy_process_group()
"""


def test_importing_torch_makes_the_name_known_and_imports_nothing_else(tmp_path: Path) -> None:
    folder = tmp_path / "horovod-0.dist-info"
    folder.mkdir()
    (folder / "METADATA").write_text("Name: horovod\nVersion: 0\n")
    (folder / "entry_points.txt").write_text(f"[torch.backends]\nhorovod = {ENTRY}\n")
    environ = {**os.environ, "PYTHONPATH": os.pathsep.join([str(tmp_path), str(ROOT / "python")])}
    done = subprocess.run([sys.executable, "-c", PROGRAM], env=environ, capture_output=True, text=True, timeout=100)
    assert done.returncode == 0, done.stderr


def test_the_wheel_has_this_entry_point() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    assert project["entry-points"]["torch.backends"] == {"horovod": ENTRY}
