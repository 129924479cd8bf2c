"""Who pays for privacy on Adult: accuracy and clipped gradients by sex, race, age and income, with and without privacy.

    HUSH_DATA=... python -m benchmarks.attacks.who_pays

Read from test rows without noise: these numbers are not private. Settings were not tuned for any group.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.nn import functional
from torch.utils.data import TensorDataset

from benchmarks.attacks.record import PICTURES, keep
from hush import Budget, PrivateGradients, Rng, TrainingPlan, data, fit
from hush.attacks import GroupReport, group_report
from hush.data import files
from hush.data.registry import ADULT
from hush.data.tables import _adult_part

SEED, DELTA, CLIP_NORM = 2, 1e-6, 0.5


def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return functional.cross_entropy(model(x), y, reduction="none")


def network(inputs: int) -> nn.Module:
    torch.manual_seed(SEED)
    return nn.Sequential(nn.Linear(inputs, 64), nn.Tanh(), nn.Linear(64, 2))


def groups_of_test_rows() -> dict[str, np.ndarray]:
    content = files.read(ADULT.files[1], ADULT, files.folders_of(ADULT.name, None))
    table = _adult_part(content)
    sex, race, income = (np.array(table[name]) for name in ("sex", "race", "income"))
    age = np.array(table["age"], dtype=float)
    black = np.char.strip(race) == "Black"
    return {
        "everybody": np.ones(len(sex), bool),
        "men": sex == "Male",
        "women": sex == "Female",
        "white": race == "White",
        "black": black,
        "other races": ~black & (race != "White"),
        "under 30": age < 30,
        "income up to 50,000": np.char.startswith(income, "<"),
        "income above 50,000": np.char.startswith(income, ">"),
        "women above 50,000": (sex == "Female") & np.char.startswith(income, ">"),
        "black women above 50,000": black & (sex == "Female") & np.char.startswith(income, ">"),
    }


def trained(train: TensorDataset, epsilon: float | None) -> nn.Module:
    model = network(train.tensors[0].shape[1])
    plan = TrainingPlan.for_budget(
        Budget(epsilon=epsilon or 1.0, delta=DELTA),
        sampling_prob=0.03,
        expected_batch_size=1_000,
        epochs=15,
        clip_norm=CLIP_NORM,
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=2.0 if epsilon else 1.0, momentum=0.9)
    if epsilon is not None:
        fit(plan, model, train, loss_fn=loss_fn, optimizer=optimizer, progress=False, rng=Rng.from_seed(SEED))
        return model
    twin = plan.without_privacy()
    gradients = PrivateGradients(model, twin)
    for batch in twin.batches(train, rng=Rng.from_seed(SEED)):
        gradients.backward(loss_fn, batch)
        optimizer.step()
        optimizer.zero_grad()
    return model


def main() -> None:
    adult = data.load("adult")
    assert adult.test is not None
    groups = groups_of_test_rows()
    reports: dict[str, GroupReport] = {}
    for name, epsilon in (("without privacy", None), ("epsilon 8", 8.0), ("epsilon 1", 1.0), ("epsilon 0.1", 0.1)):
        model = trained(adult.train, epsilon)
        reports[name] = group_report(model, loss_fn, *adult.test.tensors, groups, clip_norm=CLIP_NORM)
        for group in reports[name].groups:
            print(name, "|", group.name, group.accuracy, "clipped", group.clipped, flush=True)
    keep("who_pays", {name: report.to_dict() for name, report in reports.items()})
    draw(reports)


def draw(reports: dict[str, GroupReport]) -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(8.2, 4.6), dpi=100, layout="constrained")
    left, right = figure.subplots(1, 2, sharey=True)
    names = [group.name for group in next(iter(reports.values())).groups]
    for number, (report_name, colour) in enumerate(
        zip(reports, ("#777777", "#0b5394", "#b45f06", "#cc4125"), strict=True)
    ):
        places = np.arange(len(names)) + (number - 1.5) * 0.2
        for axes, field in ((left, "accuracy"), (right, "clipped")):
            rates: list[Any] = [getattr(group, field) for group in reports[report_name].groups]
            axes.barh(places, [100 * rate.value for rate in rates], 0.18, color=colour, label=report_name)
    left.set_yticks(range(len(names)), names, fontsize=8)
    left.invert_yaxis()
    left.set(xlabel="accuracy (%)", xlim=(0, 100))
    right.set(xlabel="gradients that were clipped (%)", xlim=(0, 100))
    left.set_title("Who pays for privacy? Adult, test rows", loc="left", fontweight="bold", fontsize=10)
    right.set_title("not private numbers", loc="right", fontsize=8, color="#cc4125")
    right.legend(fontsize=7, loc="upper right")
    figure.savefig(PICTURES / "who-pays.png")


if __name__ == "__main__":
    main()
