"""What each process of tests/training/test_distributed.py does under torchrun; the first writes what was found.

`python -m torch.distributed.run --nproc-per-node N distributed_worker.py JOB FOLDER` runs one job of `JOBS`.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from hush import Budget, Ledger
from hush.errors import HushError
from hush.rng import Rng
from hush.training import PrivateGradients, Progress, TrainingPlan, fit
from hush.training.files import write_tensors

KINDS = ("mlp", "wide", "cnn", "gpt2")
ROWS, FEATURES = 40, 16
OFF = 1e-9  # a noise multiplier that is nothing beside single precision


def make_model(kind: str) -> nn.Module:
    with torch.random.fork_rng():
        torch.manual_seed(3)
        if kind == "mlp":
            hidden = nn.Sequential(nn.Linear(9, 7), nn.Tanh())
            return nn.Sequential(nn.Linear(FEATURES, 9), nn.Tanh(), hidden, nn.Linear(7, 3))
        if kind == "wide":  # with a parameter that is large enough to travel for itself, in two pieces
            return nn.Sequential(nn.Linear(FEATURES, 1030), nn.Tanh(), nn.Linear(1030, 1030), nn.Linear(1030, 3))
        if kind == "cnn":
            first = nn.Sequential(nn.Conv2d(1, 5, 3, padding=1), nn.GroupNorm(1, 5), nn.ReLU())
            return nn.Sequential(nn.Unflatten(1, (1, 4, 4)), first, nn.Flatten(), nn.Linear(80, 3))
        from transformers import GPT2Config, GPT2LMHeadModel

        size = {"n_layer": 2, "n_head": 2, "n_embd": 8, "vocab_size": 23, "n_positions": 12}
        return GPT2LMHeadModel(GPT2Config(**size, resid_pdrop=0.0, embd_pdrop=0.0, attn_pdrop=0.0))


def loss_of(kind: str) -> Callable[..., Tensor]:
    def label(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(x), y, reduction="none")

    def words(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        tokens = (x[:, :12].abs() * 9).long() % 23
        logits = model(tokens).logits[:, :-1]
        return nn.functional.cross_entropy(logits.transpose(1, 2), tokens[:, 1:], reduction="none").mean(1)

    return words if kind == "gpt2" else label


def data() -> TensorDataset:
    stream = torch.Generator().manual_seed(5)
    x = torch.randn(ROWS, FEATURES, generator=stream)
    return TensorDataset(x, torch.randint(0, 3, (ROWS,), generator=stream))


def make_plan(**changes: Any) -> TrainingPlan:
    usual = {"noise_multiplier": OFF, "sampling_prob": 0.1, "expected_batch_size": 4, "steps": 8, "clip_norm": 0.3}
    return TrainingPlan(**{"delta": 1e-5, **usual, **changes})


def shard(model: nn.Module) -> nn.Module:
    from torch.distributed.fsdp import fully_shard

    parts = model.transformer.h if hasattr(model, "transformer") else model.children()
    for part in parts:
        if any(True for _ in part.parameters()):
            fully_shard(part)
    fully_shard(model)
    return model


def trained(
    plan: TrainingPlan, kind: str, *, sharded: bool, adam: bool = False, stop: int = 0, **settings: Any
) -> dict[str, Tensor]:
    """The weights after `fit`, or after it was stopped at a step by a callback."""
    model = shard(make_model(kind)) if sharded else make_model(kind)
    optimizer: torch.optim.Optimizer = torch.optim.SGD(model.parameters(), lr=0.5, momentum=0.5)
    if adam:
        optimizer = torch.optim.Adam(model.parameters(), lr=0.05)

    def callback(progress: Progress) -> None:
        if progress.step == stop:
            raise InterruptedError

    try:
        run = fit(
            plan,
            model,
            data(),
            loss_fn=loss_of(kind),
            optimizer=optimizer,
            rng=Rng.from_seed(11),
            callbacks=[callback],
            progress=False,
            guard_steps=0,
            **settings,
        )
    except InterruptedError:
        return {}
    return run.weights


# Plans whose trainings must give the same weights for every number of processes.
SAME: dict[str, dict[str, Any]] = {
    "plain": {},
    "twin": {"noise_multiplier": 0.0, "clip_norm": float("inf")},
    "per layer, averaged, projected": {"clipping": "per_layer", "average": "ema", "project_to": 2.5},
    "people, in pieces": {"unit": "person", "physical_batch_size": 3},
    "truncated": {"sampling": "truncated_poisson", "max_batch_size": 5, "num_examples": ROWS},
    "secure": {"secure": True, "noise_multiplier": 1e-8},
    "ordered": {
        "sampling": "ordered",
        "sampling_prob": 1.0,
        "num_examples": ROWS,
        "bands": 2,
        "relation": "zero_out",
    },
}
PEOPLE = torch.arange(ROWS) // 3


def same(sharded: bool) -> dict[str, Tensor]:
    """The weights of every kind of model and of every plan."""
    found = {
        f"{kind}/{name}": value for kind in KINDS for name, value in trained(make_plan(), kind, sharded=sharded).items()
    }
    for plan, changes in SAME.items():
        people = PEOPLE if changes.get("unit") == "person" else None
        weights = trained(make_plan(**changes), "mlp", sharded=sharded, people=people)
        found |= {f"{plan}/{name}": value for name, value in weights.items()}
    return found


FULL: dict[str, Any] = {"sampling": "full_batch", "sampling_prob": 1.0, "expected_batch_size": ROWS, "average": "mean"}


def broken_off(folder: Path, *, sharded: bool, stop: int = 0) -> dict[str, Tensor]:
    """Six steps on all rows with a checkpoint at every one, stopped after `stop` of them, or gone on with."""
    plan = make_plan(**FULL, steps=6)
    return trained(plan, "mlp", sharded=sharded, adam=True, stop=stop, folder=folder, resume=True, checkpoint_every=1)


# Noise ----------------------------------------------------------------------------------------------------------

WIDTH, REPEATS, CLIP_NORM, MULTIPLIER = 520, 2, 0.5, 1.7


def whole(value: Any) -> Tensor:
    return value.full_tensor() if hasattr(value, "full_tensor") else value


drawn: list[int] = []  # how many numbers this process drew at each step


def noise(sharded: bool, *, secure: bool = False, rng: Rng | None = None) -> Tensor:
    """The noise of a few steps without examples, (steps, coordinates), in units of the wanted deviation."""
    model: nn.Module = nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Linear(WIDTH, 30))
    model = shard(model) if sharded else model
    plan = make_plan(noise_multiplier=MULTIPLIER, clip_norm=CLIP_NORM, secure=secure)
    private = PrivateGradients(model, plan, rng=rng)
    source: Any = private._noise
    add = source.add

    def counted(gradients: dict[str, Tensor], stddev: float) -> dict[str, Tensor]:
        drawn.append(sum(value.numel() for value in gradients.values()))
        return add(gradients, stddev)

    source.add = counted
    steps = []
    for _ in range(REPEATS):
        private.backward(lambda model, x: model(x).sum(1), (torch.zeros(0, WIDTH),))
        steps.append(torch.cat([whole(value.grad).reshape(-1) for value in model.parameters()]))
    return torch.stack(steps).double() * plan.expected_batch_size / (MULTIPLIER * CLIP_NORM)


def lots(rng: Rng | None, steps: int, **changes: Any) -> list[list[int]]:
    rows = TensorDataset(torch.arange(1000))
    return [batch[0].tolist() for batch in make_plan(steps=steps, **changes).batches(rows, rng=rng)]


# What each process meets alone ------------------------------------------------------------------------------------


def error_of(work: Callable[[], object]) -> list[str]:
    try:
        work()
    except HushError as error:
        return [type(error).__name__, str(error)]
    return ["", ""]


def capped(folder: Path) -> list[Any]:
    """Charges to an account that holds a few steps only."""
    plan = make_plan(noise_multiplier=1.0, steps=50)
    ledger = Ledger(folder / "capped.db")
    account = ledger.account("few", cap=Budget(epsilon=2.0, delta=1e-5))
    private = PrivateGradients(make_model("mlp"), plan, account=account, block=3)
    taken = 0

    def loop() -> None:
        nonlocal taken
        for batch in plan.batches(data()):
            private.backward(loss_of("mlp"), batch)
            taken += 1

    return [*error_of(loop), taken, private.guarantee().epsilon]


def failing_loss(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    if dist.get_rank() == dist.get_world_size() - 1:
        raise HushError("this share is bad")
    return nn.functional.cross_entropy(model(x), y, reduction="none")


def other_plan() -> None:
    PrivateGradients(make_model("mlp"), make_plan())
    make_plan(steps=8 + dist.get_rank()).batches(data())


def other_rate() -> None:
    model = make_model("mlp")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1 * (1 + dist.get_rank()))
    fit(make_plan(), model, data(), loss_fn=loss_of("mlp"), optimizer=optimizer, progress=False)


def other_seed() -> None:
    make_plan().batches(data(), rng=Rng.from_seed(dist.get_rank()))


def other_data() -> None:
    x, y = data().tensors
    make_plan().batches(TensorDataset(x.roll(dist.get_rank(), 0), y))


def other_people() -> None:
    make_plan(unit="person").batches(data(), people=PEOPLE + torch.arange(ROWS) * dist.get_rank())


def wrapped() -> None:
    PrivateGradients(nn.parallel.DistributedDataParallel(make_model("mlp")), make_plan())


def mixing() -> None:
    def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
        return nn.functional.cross_entropy(model(x), y, reduction="none") * (1 + x.mean().square())

    PrivateGradients(shard(make_model("mlp")), make_plan()).backward(loss_fn, data()[: 6 * (1 - dist.get_rank())])


def unserved() -> None:
    class Odd(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.ones(FEATURES, 3))

        def forward(self, x: Tensor) -> Tensor:
            return torch.tensordot(x.flip(0).flip(0).cumsum(0) - x.cumsum(0) + x, self.weight, dims=1)

    PrivateGradients(shard(Odd()), make_plan()).backward(loss_of("mlp"), data()[:6])


def adaptive() -> list[float]:
    from hush.training import AdaptiveClipping

    plan = make_plan(noise_multiplier=1.0, adaptive=AdaptiveClipping(quantile=0.5, count_stddev=2.0))
    private = PrivateGradients(make_model("mlp"), plan, rng=Rng.from_seed(8))  # secret counts may be equal by chance
    batches = plan.batches(data(), rng=Rng.from_seed(9))
    return [private.backward(loss_of("mlp"), batch).clip_norm for batch in batches]


def ordinary(folder: Path) -> dict[str, Any]:
    """A script as a user writes it for one process, with every argument that has to do with files."""
    model = make_model("mlp")
    plan = make_plan(noise_multiplier=1.0, steps=12)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen: list[float | None] = []
    run = fit(
        plan,
        model,
        data(),
        loss_fn=loss_of("mlp"),
        optimizer=optimizer,
        folder=folder / "ordinary",
        callbacks=[lambda progress: seen.append(progress.report.loss)],
    )
    run.save(folder / "saved")
    run.ledger.verify()
    charged = sum(
        row.count if row.kind == "reserve" else -row.count for row in run.ledger.account("training").rows()[1:]
    )
    return {"epsilon": run.guarantee.epsilon, "charged": charged, "loss": seen, "note": run.note, "copy": run.is_copy}


def quick(folder: Path) -> dict[str, Any]:
    """Everything that two processes can show in one start."""
    rank, size = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    tensors = {f"same/{how}/{name}": value for how in (0, 1) for name, value in same(bool(how)).items()}
    for how in (0, 1):
        broken_off(folder / f"stopped {how}", sharded=bool(how), stop=3)
        tensors |= {f"resumed/{how}/{k}": v for k, v in broken_off(folder / f"alone {how}", sharded=bool(how)).items()}
    tensors |= noises()
    if rank == 0:
        write_tensors(folder / "found.safetensors", tensors, {})
    errors = {
        work.__name__: error_of(work)
        for work in (other_plan, other_rate, other_seed, other_data, other_people, wrapped, mixing, unserved)
    }
    private = PrivateGradients(make_model("mlp"), make_plan())
    errors["failing loss"] = error_of(lambda: private.backward(failing_loss, data()[: 2 * size]))
    return {
        "lots": lots(None, 100),
        "seeded lots": lots(Rng.from_seed(4), 20),
        "capped": capped(folder),
        "errors": errors,
        "clip norms": adaptive(),
        "drawn": drawn,
        "ordinary": ordinary(folder),
    }


def noises() -> dict[str, Tensor]:
    return {
        "noise/whole": noise(False),
        "noise/sharded": noise(True),
        "noise/secure": noise(False, secure=True),
        "noise/seeded": noise(False, rng=Rng.from_seed(7)),
        "noise/seeded sharded": noise(True, rng=Rng.from_seed(7)),
    }


def equality(folder: Path) -> dict[str, Any]:
    """The weights and the noise alone."""
    tensors = {f"same/{how}/{name}": value for how in (0, 1) for name, value in same(bool(how)).items()}
    tensors |= noises()
    if int(os.environ["RANK"]) == 0:
        write_tensors(folder / "found.safetensors", tensors, {})
    return {"lots": lots(None, 100), "seeded lots": lots(Rng.from_seed(4), 20)}


def endless(folder: Path) -> dict[str, Any]:
    """A long run whose steps are written down; somebody kills one of its processes."""
    rank = int(os.environ.get("RANK", "0"))
    if "WORLD_SIZE" in os.environ:
        (folder / f"process {rank}").write_text(str(os.getpid()))
    log = os.open(folder / "released", os.O_WRONLY | os.O_CREAT | os.O_APPEND)

    def tell(progress: Progress) -> None:
        if rank == 0:
            os.write(log, f"{progress.step}\n".encode())

    model = shard(make_model("mlp")) if "SHARDED" in os.environ else make_model("mlp")
    plan = make_plan(noise_multiplier=1.0, steps=int(os.environ["STEPS"]))
    fit(
        plan,
        model,
        data(),
        loss_fn=loss_of("mlp"),
        optimizer=torch.optim.SGD(model.parameters(), lr=0.1),
        folder=folder / "run",
        resume=True,
        checkpoint_every=10,
        callbacks=[tell],
    )
    return {}


JOBS: dict[str, Callable[[Path], dict[str, Any]]] = {"quick": quick, "equality": equality, "endless": endless}


def main(job: str, folder: Path) -> None:
    torch.set_num_threads(1)
    if "SECONDS" in os.environ:  # a script may make the group itself, with a patience of its own
        from datetime import timedelta

        dist.init_process_group("gloo", timeout=timedelta(seconds=float(os.environ["SECONDS"])))
    found = JOBS[job](folder)
    (folder / f"found {os.environ['RANK']}.json").write_text(json.dumps(found))


if __name__ == "__main__":
    main(sys.argv[1], Path(sys.argv[2]))
