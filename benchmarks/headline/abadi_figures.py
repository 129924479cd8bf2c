"""Row 1's figures: private PCA and 1000 units on MNIST, accuracy against epsilon, delta, clip norm, lot size and noise.

    python -m benchmarks.headline.abadi_figures

One seed for each point. Accuracy against epsilon and delta is one training run for each noise level, tested on the way:
after so many steps it has one epsilon for each delta. The other figures are at epsilon 2 and delta 1e-5, ten passes
over the data, and their noise follows; against the noise, as many steps as that epsilon allows, at most 3,000.
Writes benchmarks/results/headline/figures/1-abadi.json.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import TensorDataset

import hush
from benchmarks.headline import networks
from benchmarks.headline.data import pictures
from benchmarks.headline.result import DELTA, RESULTS
from hush import Rng, accounting, events

OUT = RESULTS / "figures" / "1-abadi.json"
DELTAS = (1e-2, 1e-3, 1e-4, 1e-5)
CURVES = {8.0: 4_000, 4.0: 6_000, 2.0: 6_000}  # noise: steps
CLIP_NORMS, LOTS, NOISES = (1.0, 2.0, 4.0, 8.0), (200, 600, 2_000), (1.0, 1.5, 2.0, 3.0)
EPSILON, PASSES, MOST_STEPS = 2.0, 10, 3_000
SEED, RATE = 0, 0.25  # the rate at noises that are not of row 1


class Abadi:
    """The data in 60 private directions, and one training run after another on them."""

    def __init__(self, share: float = 1.0) -> None:
        x, y, test_x, test_y = pictures("mnist", share)
        self.rows, self.test, self.paid = networks.components(x, test_x, SEED)
        self.dataset, self.truth = TensorDataset(self.rows, torch.from_numpy(y)), torch.from_numpy(test_y)

    def epsilon(self, noise: float, prob: float, steps: int, delta: float) -> float:
        assert self.paid is not None
        step = events.PoissonSampled(events.Gaussian(noise), prob)
        return accounting.guarantee(events.Composed(self.paid, events.Repeated(step, steps)), delta=delta).epsilon

    def train(self, noise: float, lot: int, clip_norm: float, steps: int, every: int) -> list[tuple[int, float]]:
        """(steps, accuracy on the test rows) on the way."""
        lot = min(lot, len(self.rows))
        plan = hush.TrainingPlan(
            noise_multiplier=noise, sampling_prob=lot / len(self.rows), expected_batch_size=lot, steps=steps,
            clip_norm=clip_norm, delta=DELTA, physical_batch_size=2048,
        )  # fmt: skip
        torch.manual_seed(SEED)
        model = networks.abadi((60,))
        found: list[tuple[int, float]] = []

        def test(progress: Any) -> None:
            if progress.step % every == 0 or progress.step == steps:
                with torch.no_grad():
                    right = model(self.test).argmax(dim=1) == self.truth
                found.append((int(progress.step), float(right.float().mean())))

        optimizer = torch.optim.SGD(model.parameters(), lr=networks.ABADI_RATES.get(noise, RATE))
        hush.fit(plan, model, self.dataset, loss_fn=networks._loss, optimizer=optimizer,
                 scheduler=networks.falling(optimizer, networks.ABADI_FALLS_TO, steps),
                 rng=Rng.from_seed(20_000 + SEED), callbacks=[test], progress=False)  # fmt: skip
        return found

    def needed_noise(self, prob: float, steps: int) -> float:
        """For EPSILON, with what the directions cost."""
        low = accounting.noise_for(hush.Budget(epsilon=EPSILON, delta=DELTA), sampling_prob=prob, steps=steps)
        while self.epsilon(low, prob, steps, DELTA) > EPSILON:
            low *= 1.002
        return low


def curves(abadi: Abadi, shorter: int) -> list[dict[str, Any]]:
    found = []
    for noise, steps in CURVES.items():
        prob = min(1.0, 600 / len(abadi.rows))
        on_the_way = abadi.train(noise, 600, 4.0, steps // shorter, max(1, steps // shorter // 20))
        for done, accuracy in on_the_way:
            epsilons = {f"{delta:g}": abadi.epsilon(noise, prob, done, delta) for delta in DELTAS}
            found.append(
                {"figure": "epsilon", "noise": noise, "steps": done, "accuracy": accuracy, "epsilons": epsilons}
            )
        print(f"noise {noise}: {found[-1]}", flush=True)
    return found


def point(abadi: Abadi, figure: str, shorter: int, **how: float) -> dict[str, Any]:
    lot = int(how.get("lot", 600))
    prob = min(1.0, lot / len(abadi.rows))
    if "noise" in how:
        noise = how["noise"]
        steps = accounting.steps_for(hush.Budget(epsilon=0.98 * EPSILON, delta=DELTA), noise_multiplier=noise,
                                     sampling_prob=prob)  # fmt: skip
        steps = min(steps, MOST_STEPS)
    else:
        steps = int(PASSES / prob)
        noise = abadi.needed_noise(prob, steps)
    accuracy = abadi.train(noise, lot, how.get("clip_norm", 4.0), max(1, steps // shorter), steps)[-1][1]
    found = {
        "figure": figure, "noise": noise, "lot": lot, "clip_norm": how.get("clip_norm", 4.0), "steps": steps,
        "epsilon": abadi.epsilon(noise, prob, steps, DELTA), "accuracy": accuracy,
    }  # fmt: skip
    print(found, flush=True)
    return found


def main(out: Path = OUT, share: float = 1.0, shorter: int = 1) -> None:
    start = time.perf_counter()
    abadi = Abadi(share)
    found = [point(abadi, "clip norm", shorter, clip_norm=value) for value in CLIP_NORMS]
    found += [point(abadi, "lot size", shorter, lot=value) for value in LOTS]
    found += [point(abadi, "noise", shorter, noise=value) for value in NOISES]
    found += curves(abadi, shorter)
    out.parent.mkdir(parents=True, exist_ok=True)
    out.write_text(json.dumps(found, indent=1) + "\n")
    print(f"{time.perf_counter() - start:.0f} s")


if __name__ == "__main__":
    main()
