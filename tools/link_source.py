"""Makes this source tree importable in the environment that runs it and installs its `horovodrun`.

A development install without a build step.
"""

from __future__ import annotations

import stat
import sys
import sysconfig
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def main() -> None:
    site = Path(sysconfig.get_path("purelib"))
    (site / "horovod_source.pth").write_text(f"{ROOT}\n")
    script = Path(sysconfig.get_path("scripts")) / "horovodrun"
    script.write_text(f"#!{sys.executable}\nimport sys\n\nfrom horovod.runner.cli import main\n\nsys.exit(main())\n")
    script.chmod(script.stat().st_mode | stat.S_IXUSR | stat.S_IXGRP | stat.S_IXOTH)


if __name__ == "__main__":
    main()
