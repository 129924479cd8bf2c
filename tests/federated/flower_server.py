"""A Flower server in a process of its own: `python flower_server.py ADDRESS LEDGER OUT`."""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

os.environ["FLWR_TELEMETRY_ENABLED"] = "0"

import numpy
from flwr.server import ServerConfig, start_server

from hush import Budget, Ledger, Rng, TrainingPlan
from hush.federated import PrivateFedAvgServer, PrivateRounds

PLAN = TrainingPlan(noise_multiplier=0.5, sampling_prob=1.0, expected_batch_size=2, steps=4, clip_norm=1.0, delta=1e-5)


def main(address: str, ledger: str, out: str) -> None:
    account = Ledger(ledger).account("clients", cap=Budget(epsilon=500.0, delta=1e-5))
    start = {"weight": numpy.zeros(4, dtype=numpy.float32)}
    rounds = PrivateRounds(PLAN, start, account=account, rng=Rng.from_seed(3))
    strategy = PrivateFedAvgServer(rounds, least_clients=2, patience=120)
    history = start_server(server_address=address, config=ServerConfig(num_rounds=PLAN.steps), strategy=strategy)
    facts = {
        "reports": [vars(report) for report in strategy.reports],
        "epsilon": strategy.guarantee().epsilon,
        "weight": strategy.arrays["weight"].tolist(),
        "metrics": len(history.metrics_distributed_fit),
    }
    Path(out).write_text(json.dumps(facts))


if __name__ == "__main__":
    main(*sys.argv[1:])
