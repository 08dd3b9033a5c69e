"""Where contenders live that tidegate does not depend on: each in an environment of its own below `.tidegate/contenders`, made once."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Final, NamedTuple, final

from benchmarks.smoke import SMOKE

ROOT: Final = Path(__file__).parents[1]
FOLDER: Final = ROOT / ".tidegate" / "contenders"


@final
class Environment(NamedTuple):
    """What a contender needs besides what tidegate has.

    Attributes:
        name: Of its folder.
        packages: Pinned; with none it is the environment that this runs in.
        python: Which Python runs it; the one that this runs on, if it is not said.
    """

    name: str
    packages: tuple[str, ...] = ()
    python: str = ""

    @property
    def interpreter(self) -> Path:
        """What runs its scripts."""
        return FOLDER / self.name / "bin" / "python" if self.packages else Path(sys.executable)

    def made(self) -> str | None:
        """Make it, unless it is there with the same packages.

        Returns:
            Why it cannot be made; None if it is there.
        """
        if not self.packages:
            return None
        if SMOKE:
            return "it is a smoke run"
        python = next(_pythons(self.python), None) or shutil.which(self.python) if self.python else sys.executable
        if python is None:
            return f"there is no {self.python}"
        ready, said = FOLDER / self.name / "ready", "\n".join(self.packages)
        if ready.exists() and ready.read_text(encoding="utf-8") == said:
            return None
        for argv in (
            [python, "-m", "venv", "--clear", str(FOLDER / self.name)],
            [str(self.interpreter), "-m", "pip", "install", "--quiet", *self.packages],
        ):
            if (failed := subprocess.run(argv, capture_output=True, text=True, check=False)).returncode:
                return failed.stderr.strip().splitlines()[-1]
        ready.write_text(said, encoding="utf-8")
        return None


def _pythons(name: str) -> Iterator[str]:
    """Interpreters of that name that pyenv has; those that its shims stand for may be missing."""
    root = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv"))
    return (str(each) for each in sorted(root.glob(f"versions/*/bin/{name}")))
