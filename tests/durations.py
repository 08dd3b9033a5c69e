"""Record how long each function of tests takes: `make durations`."""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import Final
from xml.etree import ElementTree as ET

RECORD: Final = Path(__file__).with_name("durations.json")


def write(junit: Path) -> None:
    """Write the record: by file and function, the seconds of the slowest case."""
    recorded: dict[str, dict[str, float]] = {}
    for case in ET.parse(junit).iter("testcase"):  # noqa: S314  pytest has written it
        file = case.attrib["classname"].replace(".", "/") + ".py"
        name, seconds = case.attrib["name"].partition("[")[0], round(float(case.attrib["time"]), 1)
        names = recorded.setdefault(file, {})
        names[name] = max(seconds, names.get(name, 0.0))
    text = {file: dict(sorted(names.items())) for file, names in sorted(recorded.items())}
    RECORD.write_text(json.dumps(text, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    write(Path(sys.argv[1]))
