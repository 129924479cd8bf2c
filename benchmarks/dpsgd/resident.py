"""Peak resident size of a process that does one thing.

python -m benchmarks.dpsgd.resident ROW nothing|ordinary|hush
"""

from __future__ import annotations

import os
import resource
import sys

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("TRANSFORMERS_VERBOSITY", "error")
os.environ["MALLOC_MMAP_THRESHOLD_"] = "65536"


def main() -> None:
    import torch

    from benchmarks.dpsgd import run
    from benchmarks.dpsgd.models import ROWS

    torch.set_num_threads(2)
    row, mode = ROWS[int(sys.argv[1])], sys.argv[2]
    ordinary, private = run.ordinary(row), run.hush(row)  # both, so that imports and models count for all alike
    for _ in range(3):
        if mode == "ordinary":
            ordinary()
        elif mode == "hush":
            private()
    print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024)


if __name__ == "__main__":
    main()
