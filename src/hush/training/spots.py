"""When and which examples are compared with themselves alone."""

from __future__ import annotations

from hush.rng import Rng

_SHARE = 1 / 64  # of the steps between the first and the last that are checked
_EARLY = 6  # batches at the beginning that are all checked
_MOST_AT_ENDS = 3  # examples that are checked at the first and at the last step


class SpotChecks:
    """Which examples are compared with themselves alone, and when: chosen in secret, so that nothing can step aside.

    Three at the first batch with two rows and at the last step. One in each of the next five batches, in every batch
    that is larger or smaller than all before, and at every other step with probability 1/64. What begins to mix
    examples at any step and goes on to the end is found at the last step; what lasts for n steps, with probability
    1 - (63/64)^n at least.
    """

    def __init__(self, rng: Rng, steps: int) -> None:
        self._stream = rng.stream(rng.unused("spot checks"))
        self._last = steps - 1
        self._seen = 0  # batches
        self._least, self._largest = 0, 0  # numbers of rows so far

    def rows(self, step: int, count: int) -> list[int]:
        """Return the places to look at among `count` rows."""
        if count < 2:
            return []
        is_record = not self._least <= count <= self._largest
        self._least, self._largest = min(self._least or count, count), max(self._largest, count)
        self._seen += 1
        if self._seen == 1 or step >= self._last:
            most = _MOST_AT_ENDS
        else:
            most = int(self._seen <= _EARLY or is_record or self._stream.random() < _SHARE)
        return sorted(int(row) for row in self._stream.choice(count, min(most, count), replace=False))

    def any_row(self, count: int) -> list[int]:
        """Return one place among `count` rows, for a look that costs next to nothing; none where there is one row."""
        return [int(self._stream.integers(count))] if count > 1 else []
