"""How far commit metadata reaches, beside Confluent's Parallel Consumer, and what it costs: `python -m benchmarks.metadata`.

A row is a pattern of open offsets behind a stuck head. The reach is how many offsets 4,096 characters can tell of, with
the same data for both; of what is regular, up to 1,048,576. Theirs is computed as they encode: one magic byte, then the shortest of

    a bitset       a bit for each offset, behind its length as int16 (up to 32,767 offsets) or int32
    run-lengths    how long each run is, open and done in turn, as int16 or int32; the first may be 0
    either of them compressed with zstd, which they try once nothing else is below 200 bytes

in base64, so 3,072 bytes. They stop taking new records at three quarters of that, which is the column after it. Zstandard
is asked from the system's library; where there is none, theirs is what was measured with it for this table, on other data
of the same kind.
"""

from __future__ import annotations

import ctypes
import math
import re
from array import array
from bisect import bisect_right
from collections.abc import Callable, Iterator, Sequence
from ctypes.util import find_library
from functools import partial
from itertools import pairwise
from random import Random
from timeit import default_timer
from typing import Final

from benchmarks.smoke import sized

from tidegate.consumer.committing.commit_metadata import Alphabet, Survey, decoded, encoded, surveyed, units
from tidegate.consumer.offsets.watermark import OffsetTracker, Run, completed, delivered, restored, successor

LIMIT: Final = 4096
BYTES: Final = LIMIT * 3 // 4
STOP: Final = BYTES * 3 // 4
MAGIC: Final = 1
LEVEL: Final = 3
"""Zstandard's default."""

BATCH: Final = 500
ROUNDS: Final = sized(20, 1)

CAP: Final = 1 << 20
"""Of what is regular, no more than this is looked at."""


def at_random(share: float, span: int) -> Iterator[Run]:
    """Each offset is open with this probability, and the first is; the done ones, as runs."""
    draw, base = Random(int(share * 10**6)), math.log1p(-share)  # noqa: S311  it draws a workload, no secret
    at = 0
    while at < span:
        done = int(math.log(1 - draw.random()) / base)
        if done:
            yield at + 1, at + 1 + done
        at += 1 + done


def in_bursts(opened: int, done: int, span: int) -> Iterator[Run]:
    """Runs of open and of done ones in turn, of random lengths with these means."""
    draw, at = Random(opened * done), 0  # noqa: S311  it draws a workload, no secret
    while at < span:
        start = at + drawn(draw, opened)
        at = start + drawn(draw, done)
        yield start, at


def regular(opened: Sequence[int], period: int) -> Iterator[Run]:
    """The same offsets of each period are open."""
    done = "".join("01"[at not in opened] for at in range(period)) * (CAP // period + 1)
    return (run.span() for run in re.finditer("1+", done[:CAP]))


def with_noise(ppm: int) -> Iterator[Run]:
    """Batches of 500 of which 20 are open, but for some that are otherwise, with this probability."""
    draw = Random(ppm)  # noqa: S311  it draws a workload, no secret
    done = "".join("01"[(at % 500 >= 20) ^ (draw.random() * 10**6 < ppm)] for at in range(CAP))
    return (run.span() for run in re.finditer("1+", done))


def drawn(draw: Random, mean: int) -> int:
    return 1 + int(math.log(1 - draw.random()) / math.log1p(-1 / mean))


ROWS: Final[tuple[tuple[str, Callable[[], Iterator[Run]], int], ...]] = (
    ("open at random, 0.1 %", partial(at_random, 0.001, 5_800_000), 1_445_888),
    ("open at random, 1 %", partial(at_random, 0.01, 900_000), 219_136),
    ("open at random, 10 %", partial(at_random, 0.1, 160_000), 44_416),
    ("open at random, 50 %", partial(at_random, 0.5, 80_000), 24_512),
    ("bursts of 5 open, 50 done", partial(in_bursts, 5, 50, 400_000), 82_944),
    ("bursts of 20 open, 20 done", partial(in_bursts, 20, 20, 300_000), 60_416),
    ("each 2nd open", partial(regular, (0,), 2), CAP),
    ("each 10th open", partial(regular, (0,), 10), CAP),
    ("each 100th open", partial(regular, (0,), 100), CAP),
    ("3 of 50 open", partial(regular, (0, 7, 31), 50), CAP),
    ("20 of 500 open", partial(regular, tuple(range(20)), 500), CAP),
    ("20 of 500 open, noise 0.2 %", partial(with_noise, 2_000), 483_328),
)
"""The pattern, its data, and the Parallel Consumer's reach as it was measured for this project."""


def main() -> None:
    """Print both tables."""
    zstd = zstandard()
    print(f"offsets that {LIMIT:,} characters can tell of; theirs {'computed' if zstd else 'as measured earlier'}\n")
    print(f"{'':28}{'theirs':>12}{'they stop at':>14}{'ours, ASCII':>14}{'ours':>12}{'gain':>7}")
    for name, data, measured in ROWS[: sized(len(ROWS), 1)]:
        runs = tuple(data())
        theirs, stop = (reached(runs, size, zstd) if zstd else measured * size // BYTES for size in (BYTES, STOP))
        survey = surveyed(restored(0, runs))
        told = [encoded(survey, alphabet=alphabet).stop for alphabet in (Alphabet.ASCII, Alphabet.WIDE)]
        ascii_, wide = (min(each, runs[-1][1]) for each in told)
        print(f"{name:28}{theirs:12,}{stop:14,}{ascii_:14,}{wide:12,}{wide / theirs:7.2f}", flush=True)
    print(
        f"\nwhat it costs behind a stuck head, where two of four are done; best of {ROUNDS} batches of up to {BATCH}\n"
    )
    print(f"{'':28}{'survey':>12}{'from scratch':>14}{'size':>9}{'encode':>12}{'decode':>12}{'units':>8}")
    print(f"{'window':28}{'us a record':>12}{'us a record':>14}{'us':>9}{'us':>12}{'us':>12}{'at last':>8}")
    for window in sized((1_000, 10_000, 100_000), (1_000,)):
        for name, spread in (("near each other", 2 * BATCH), ("all over", window)):
            print(f"{f'{window:,}, {name}':28}{costs(window, spread)}", flush=True)


# --- theirs -------------------------------------------------------------------------------------------------------------

Compress = Callable[[bytes], int]


def zstandard() -> Compress | None:
    """How many bytes Zstandard makes of these, if the system has it."""
    name = find_library("zstd")
    if name is None:
        return None
    library = ctypes.CDLL(name)
    library.ZSTD_compressBound.restype = library.ZSTD_compress.restype = ctypes.c_size_t
    library.ZSTD_compressBound.argtypes = [ctypes.c_size_t]
    library.ZSTD_compress.argtypes = [
        *(ctypes.c_void_p, ctypes.c_size_t, ctypes.c_char_p, ctypes.c_size_t),
        ctypes.c_int,
    ]

    def compress(raw: bytes) -> int:
        room = library.ZSTD_compressBound(len(raw))
        return int(library.ZSTD_compress(ctypes.create_string_buffer(room), room, raw, len(raw), LEVEL))

    return compress


def reached(runs: Sequence[Run], size: int, zstd: Compress) -> int:
    """The span up to which their shortest encoding takes no more bytes; none of them shrinks as the span grows."""
    edges = [0, *(edge for run in runs for edge in run)]
    bits = b"".join(bytes([48 + at % 2]) * (stop - start) for at, (start, stop) in enumerate(pairwise(edges)))
    spans = range(0, len(bits), 256)
    return spans[bisect_right(spans, size, key=lambda span: theirs_takes(bits[:span], edges, span, zstd)) - 1]


def theirs_takes(bits: bytes, edges: Sequence[int], span: int, zstd: Compress) -> int:
    """How many bytes their shortest encoding of the first offsets takes."""
    cut = [edge for edge in edges if edge < span]
    lengths = [stop - start for start, stop in pairwise([*cut, span])]
    bitset = int(bits[::-1] or b"0", 2).to_bytes((span + 7) // 8, "little")
    bodies = [bytes(2 if span < 2**15 else 4) + bitset, array("i", lengths).tobytes()]
    if max(lengths, default=0) < 2**15:
        bodies.append(array("h", lengths).tobytes())
    return MAGIC + min(size for body in bodies for size in (len(body), zstd(body)))


# --- costs --------------------------------------------------------------------------------------------------------------


def costs(window: int, spread: int) -> str:
    """Batches of completions, each drawn from the given number of open offsets that come first."""
    draw = Random(window + spread)  # noqa: S311  it draws a workload, no secret
    tracker = completed(delivered(OffsetTracker(0), range(window)), [at for at in range(2, window) if at % 4 < 2])
    waiting = [at for at in range(1, window) if at % 4 >= 2]
    size = min(BATCH, window // 16)
    survey: Survey | None = None
    rounds: list[tuple[float, ...]] = []
    made = encoded(surveyed(tracker))
    while len(rounds) < ROUNDS and len(waiting) > window // 8:
        batch = draw.sample(waiting[:spread], size)
        waiting = sorted({*waiting} - {*batch})
        tracker = completed(tracker, batch)
        clock = [default_timer()]
        survey = surveyed(tracker, survey)
        clock.append(default_timer())
        again = surveyed(tracker)
        clock.append(default_timer())
        _ = units(survey)
        clock.append(default_timer())
        made = encoded(survey)
        clock.append(default_timer())
        read = decoded(made.text, position=made.position, end=window)
        clock.append(default_timer())
        if (again, read.tracker) != (survey, successor(tracker, made.stop)):
            raise AssertionError("what was decoded is not what was encoded, so the times mean nothing")
        rounds.append(tuple((stop - start) * 1e6 for start, stop in pairwise(clock)))
    by_step, anew, sized, made_in, read_in = map(min, zip(*rounds, strict=True))
    return f"{by_step / size:12.2f}{anew / size:14.2f}{sized:9.0f}{made_in:12.0f}{read_in:12.0f}{len(made.text):8,}"


if __name__ == "__main__":
    main()
