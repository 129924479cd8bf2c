"""A Flower app: `python flower_app.py` simulates it with five clients, and SuperNodes run it for `flwr run`.

Client 0 always fails and client 1 sends NaN. The server's ledger is LEDGER, and what it saw goes to OUT as JSON.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterable
from pathlib import Path
from typing import Any, ClassVar

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from hush import Budget, Ledger, Rng, TrainingPlan
from hush.federated import PrivateFedAvg, clip_update

PLAN = TrainingPlan(noise_multiplier=0.5, sampling_prob=0.8, expected_batch_size=4, steps=3, clip_norm=1.0, delta=1e-5)
client_app = ClientApp(mods=[clip_update] if "MOD" in os.environ else [])
server_app = ServerApp()


@client_app.train()
def train(message: Message, context: Context) -> Message:
    number = int(context.node_config["partition-id"])
    if number == 0:
        raise RuntimeError("this client always fails")
    model = message.content.array_records["arrays"]
    step = float("nan") if number == 1 else 10.0  # far beyond the clip norm
    arrays = {name: Array(value.numpy() + numpy.float32(step)) for name, value in model.items()}
    metrics = MetricRecord({"num-examples": 100 * number, "loss": 0.1})  # private, and nobody reads it
    return Message(content=RecordDict({"arrays": ArrayRecord(array_dict=arrays), "metrics": metrics}), reply_to=message)


class Watched(PrivateFedAvg):
    """Notes how long the updates were that reached the server."""

    norms: ClassVar[list[float]] = []

    def aggregate_train(self, server_round: int, replies: Iterable[Message]) -> Any:
        replies, before = list(replies), self._begun().arrays
        for reply in replies:
            if not reply.has_error():
                found = reply.content.array_records["arrays"]["weight"].numpy()
                self.norms.append(float(numpy.linalg.norm(numpy.nan_to_num(found) - before["weight"])))
        return super().aggregate_train(server_round, replies)


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    account = Ledger(os.environ["LEDGER"]).account("clients", cap=Budget(epsilon=500.0, delta=1e-5))
    strategy = Watched(
        PLAN, account=account, least_clients=int(os.environ["CLIENTS"]), rng=Rng.from_seed(3), note="simulation"
    )
    start = ArrayRecord(array_dict={"weight": Array(numpy.zeros(4, dtype=numpy.float32))})
    result = strategy.start(grid, initial_arrays=start, num_rounds=PLAN.steps, timeout=300)
    facts = {
        "reports": [vars(report) for report in strategy.reports],
        "epsilon": strategy.guarantee().epsilon,
        "weight": result.arrays["weight"].numpy().tolist(),
        "longest": max(Watched.norms),
        "metrics": [len(result.train_metrics_clientapp), len(result.evaluate_metrics_clientapp)],
    }
    Path(os.environ["OUT"]).write_text(json.dumps(facts))


if __name__ == "__main__":
    resources = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2, "include_dashboard": False}}
    run_simulation(server_app, client_app, num_supernodes=5, backend_config=resources)  # type: ignore[arg-type]
