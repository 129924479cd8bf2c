from __future__ import annotations

import os

from hypothesis import settings

# `make test` runs one worker on each core: threads on top of that only wait for one another. Set before torch loads.
os.environ.setdefault("OMP_NUM_THREADS", "1")

# Times say nothing on a busy machine, and the same examples are drawn every time.
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")
