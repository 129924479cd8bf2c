"""A Flower simulation in a process of its own: `python flower_simulation.py LEDGER OUT`.

Five simulated clients; one always fails and one sends NaN. What the server saw goes to OUT as JSON.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"
os.environ["RAY_USAGE_STATS_ENABLED"] = "0"

import numpy
from flwr.app import Array, ArrayRecord, Context, Message, MetricRecord, RecordDict
from flwr.clientapp import ClientApp
from flwr.serverapp import Grid, ServerApp
from flwr.simulation import run_simulation

from hush import Budget, Ledger, Rng, TrainingPlan
from hush.federated import PrivateFedAvg

PLAN = TrainingPlan(noise_multiplier=0.5, sampling_prob=0.8, expected_batch_size=4, steps=3, clip_norm=1.0, delta=1e-5)
client_app = ClientApp()
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


@server_app.main()
def serve(grid: Grid, context: Context) -> None:
    account = Ledger(sys.argv[1]).account("clients", cap=Budget(epsilon=500.0, delta=1e-5))
    strategy = PrivateFedAvg(PLAN, account=account, least_clients=5, rng=Rng.from_seed(3), note="simulation")
    start = ArrayRecord(array_dict={"weight": Array(numpy.zeros(4, dtype=numpy.float32))})
    result = strategy.start(grid, initial_arrays=start, num_rounds=PLAN.steps, timeout=300)
    facts = {
        "reports": [vars(report) for report in strategy.reports],
        "epsilon": strategy.guarantee().epsilon,
        "weight": result.arrays["weight"].numpy().tolist(),
        "metrics": [len(result.train_metrics_clientapp), len(result.evaluate_metrics_clientapp)],
    }
    Path(sys.argv[2]).write_text(json.dumps(facts))


if __name__ == "__main__":
    resources = {"client_resources": {"num_cpus": 1}, "init_args": {"num_cpus": 2, "include_dashboard": False}}
    run_simulation(server_app, client_app, num_supernodes=5, backend_config=resources)  # type: ignore[arg-type]
