"""Makes this source tree importable in the environment that runs it and installs its `horovodrun`.

A development install without a build step.
"""

from __future__ import annotations

import stat
import sys
import sysconfig
from pathlib import Path

PACKAGES = Path(__file__).resolve().parent.parent / "python"


def main() -> None:
    site = Path(sysconfig.get_path("purelib"))
    (site / "horovod_source.pth").write_text(f"{PACKAGES}\n")
    script = Path(sysconfig.get_path("scripts")) / "horovodrun"
    lines = ["from horovod.runner.__main__ import program", "", "program()", ""]
    script.write_text("\n".join([f"#!{sys.executable}", *lines]))
    script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


if __name__ == "__main__":
    main()
