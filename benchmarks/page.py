"""How quickly a page opens and steps, in a real headless Chromium.

    python -m benchmarks.page [--steps 2000] [--json FILE]

Reported are the size of the file, the time from asking for it to its first picture with lanes, the time a step takes from
the key to the next frame (the median, and the slowest of a hundred), and how many rows are elements while it scrolls.
"""

from __future__ import annotations

import argparse
import json
import statistics
import tempfile
import time
from pathlib import Path
from typing import Final, cast

from benchmarks.smoke import sized
from tests.integration.browser import HOW_TO, Browser, chromium, running
from tests.integration.page_runs import long

from tidegate_adapters.page.assembly import page

STEPS: Final = """
(async () => {
  const frame = () => new Promise(requestAnimationFrame);
  const spent = [];
  for (let left = 100; left--;) {
    await frame();
    const start = performance.now();
    document.dispatchEvent(new KeyboardEvent("keydown", {key: "k"}));
    rows.getBoundingClientRect();
    spent.push(performance.now() - start);
  }
  scroller.scrollTop = scroller.scrollHeight / 2;
  await frame();
  await frame();
  return [spent, rows.children.length];
})()
"""


def measured(browser: Browser, folder: Path, steps: int) -> dict[str, float]:
    file = folder / f"{steps}.html"
    file.write_text(page(long(steps), "trace.json"), "utf-8")
    opened = []
    for _ in range(3):
        start = time.perf_counter()
        first = browser.open(file)
        opened.append(time.perf_counter() - start)
        first.close()
    tab = browser.open(file)
    spent, elements = cast("tuple[list[float], int]", tab.run(STEPS))
    tab.close()
    return {
        "steps": steps,
        "file_kb": round(file.stat().st_size / 1_000),
        "open_s": round(min(opened), 3),
        "step_median_ms": round(statistics.median(spent), 2),
        "step_worst_ms": round(max(spent), 2),
        "rows_as_elements": elements,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, action="append", help="how many steps the run has; may be given again")
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the figures there as well")
    given = parser.parse_args()
    if chromium() is None:
        print(f"the page is not measured: {HOW_TO}")
        return 0
    with tempfile.TemporaryDirectory() as name, running(Path(name) / "profile") as browser:
        found = [measured(browser, Path(name), steps) for steps in given.steps or sized((20, 2_000, 20_000), (20,))]
    for each in found:
        print(
            f"{each['steps']:>6,} steps  {each['file_kb']:>6,} kB  opens in {each['open_s']:.2f} s  "
            f"a step takes {each['step_median_ms']:.1f} ms (worst {each['step_worst_ms']:.1f} ms)  "
            f"{each['rows_as_elements']} rows are elements"
        )
    if given.json:
        given.json.parent.mkdir(parents=True, exist_ok=True)
        given.json.write_text(json.dumps(found, indent=1) + "\n", "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
