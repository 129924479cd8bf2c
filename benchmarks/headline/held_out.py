"""How the recipes of pictures were chosen: variants of them on held-out training rows, with a seed that no table has.

    python -m benchmarks.headline.held_out cifar10

The last sixth of the training rows stands in for the test part. What was found when the recipes and the settings of
IMDB were chosen is benchmarks/results/headline/figures/held-out.json: by scratch forms of this script, whose noise was
another, and with fewer filters, so that its numbers are for comparing with each other.
"""

from __future__ import annotations

import json
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.headline import heads
from hush.cli.feature_recipes import RECIPES, FeatureRecipe
from hush.features import Patches, WhitenedPatches

SEED = 77
NAMES = {"mnist": "mnist-features", "fashion-mnist": "fashion-features", "cifar10": "cifar-patches"}
VARIANTS: dict[str, dict[str, Any]] = {
    "as it is": {},
    "narrow hills": {"overlap": 0.35},
    "more cells": {"cells": 7},
    "patches of 7": {"patch_size": 7},
    "a higher threshold": {"threshold": 0.6},
    "flat patches count less": {"contrast": 1.0},
    "whitened more": {"ridge": 0.05},
    "hardly whitened": {"ridge": 1_000.0},
    "whitened by private pictures": {"noise_multiplier": 30.0},
    "rows clipped less": {"clip_norm": 1.0},
    "half as many steps": {"steps": 40},
}


def variant(data: str, changes: dict[str, Any]) -> FeatureRecipe:
    """The recipe of this data with other settings, of the patches or of the softmax."""
    chosen = RECIPES[NAMES[data]]
    of_head = {key: changes[key] for key in ("clip_norm", "steps") if key in changes}
    of_patches = {key: value for key, value in changes.items() if key not in of_head}

    def make(seed: int | None) -> list[Any]:
        kind = WhitenedPatches if "noise_multiplier" in changes else Patches
        own = {"random_state": 1_000_000 + (seed or 0)} if kind is WhitenedPatches else {}  # not the mean's
        found = chosen.make(seed)
        return [kind(**{**one.get_params(), **of_patches, **own}) if isinstance(one, Patches) else one for one in found]

    return replace(chosen, make=make, **of_head)


def main(data: str, out: Path | None = None, share: float = 1.0, most_steps: int | None = None) -> None:
    found = []
    for what, changes in VARIANTS.items():
        results = heads.run(
            variant(data, changes), what, share=share, seeds=(SEED,), most_steps=most_steps, validate=True
        )
        found.append({"what": what, **changes, "held_out_percent": [round(100 * one.mean, 2) for one in results]})
        print(found[-1], flush=True)
    if out is not None:
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main(sys.argv[1])
