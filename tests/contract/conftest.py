from __future__ import annotations

import sys
from pathlib import Path

# The models and the naive loop that the gradient tests share.
sys.path.append(str(Path(__file__).resolve().parent.parent / "gradients"))
