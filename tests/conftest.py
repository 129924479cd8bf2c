from __future__ import annotations

from hypothesis import settings

# Times say nothing on a busy machine, and the same examples are drawn every time.
settings.register_profile("house", deadline=None, derandomize=True)
settings.load_profile("house")
