"""What holds for every test: the collector of cycles is patient.

Searches make millions of small values and hardly a cycle, and the collector looks through all that is young after every
seven hundred of them: the tests take a tenth longer, a plain search a third.
"""

from __future__ import annotations

import gc

gc.set_threshold(100_000, 20, 100)
