"""The client's mod and the server's strategy, message by message, without processes."""

from __future__ import annotations

import math
from typing import Any

import numpy
import pytest

pytest.importorskip("flwr", reason="Flower is not installed: pip install 'hush[federated]'")

from flwr.app import Array, ArrayRecord, ConfigRecord, Message, MessageType, RecordDict

from hush import Rng, TrainingPlan
from hush.errors import InvalidValue
from hush.federated import PrivateFedAvg, clip_update
from hush.training import AdaptiveClipping

START = numpy.arange(6, dtype=numpy.float32)


@pytest.fixture(autouse=True)
def as_a_task(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flower lets only its own tasks make messages, and knows them by these numbers."""
    for name in ("_run_id", "_node_id", "_task_id"):
        monkeypatch.setattr("flwr.supercore.task_identity.TaskIdentity." + name, 1)


def record(values: Any) -> ArrayRecord:
    return ArrayRecord(array_dict={"weight": Array(numpy.asarray(values))})


def asked(clip_norm: float | None = 2.0, kind: str = MessageType.TRAIN) -> Message:
    config = ConfigRecord() if clip_norm is None else ConfigRecord({"clip-norm": clip_norm})
    return Message(content=RecordDict({"arrays": record(START), "config": config}), message_type=kind, dst_node_id=1)


def through_the_mod(message: Message, update: Any) -> Message:
    def train(message: Message, context: Any) -> Message:
        return Message(content=RecordDict({"arrays": record(START + numpy.float32(update))}), reply_to=message)

    return clip_update(message, None, train)  # type: ignore[arg-type]


def sent(reply: Message) -> numpy.ndarray[Any, Any]:
    return numpy.asarray(reply.content.array_records["arrays"]["weight"].numpy()) - START


def test_a_large_update_leaves_the_client_clipped_and_in_its_direction() -> None:
    update = numpy.array([3.0, 0.0, 4.0, 0.0, 0.0, 0.0])
    reply = through_the_mod(asked(), update)
    assert sent(reply) == pytest.approx(update * 2.0 / 5.0, abs=1e-6)
    assert "clipped" in reply.content
    assert reply.content.array_records["arrays"]["weight"].numpy().dtype == numpy.float32


def test_a_small_update_leaves_the_client_as_it_is() -> None:
    reply = through_the_mod(asked(), numpy.full(6, 0.1))
    assert (sent(reply) == START + numpy.float32(0.1) - START).all()
    assert list(reply.content) == ["arrays"]


@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_what_cannot_be_clipped_does_not_leave_the_client(bad: float) -> None:
    with pytest.raises(InvalidValue, match="no finite update"):
        through_the_mod(asked(), bad)


def test_the_mod_asks_for_the_strategys_clip_norm() -> None:
    with pytest.raises(InvalidValue, match="PrivateFedAvg"):
        through_the_mod(asked(None), 1.0)
    assert (sent(through_the_mod(asked(None, MessageType.QUERY), 9.0)) == 9.0).all()  # not training


class Nodes:
    """Stands in for Flower's grid, which the strategy asks only who is there."""

    def get_node_ids(self) -> list[int]:
        return [1, 2, 3, 4]


@pytest.mark.parametrize("with_mod", [False, True])
def test_the_clip_norm_follows_what_clients_say_they_clipped(with_mod: bool) -> None:
    """Three of four updates are above the clip norm, so it grows, whether they were clipped here or there."""
    adaptive = AdaptiveClipping(quantile=0.5, count_stddev=0.05, rate=0.4)
    plan = TrainingPlan(
        noise_multiplier=0.05, sampling_prob=1.0, expected_batch_size=4, steps=5, clip_norm=2.0, delta=1e-5,
        adaptive=adaptive, sampling="full_batch",
    )  # fmt: skip
    strategy = PrivateFedAvg(plan, rng=Rng.from_seed(1))
    grid: Any = Nodes()
    messages = list(strategy.configure_train(1, record(START), ConfigRecord(), grid))
    assert [message.content.config_records["config"]["clip-norm"] for message in messages] == [2.0] * 4
    replies = []
    for message in messages:
        update = numpy.full(6, 0.1 if message.metadata.dst_node_id == 1 else 5.0)
        if with_mod:
            reply = through_the_mod(message, update)
        else:
            reply = Message(content=RecordDict({"arrays": record(START + update)}), reply_to=message)
        reply.metadata.__dict__["_src_node_id"] = message.metadata.dst_node_id
        replies.append(reply)
    strategy.aggregate_train(1, replies)
    again = next(iter(strategy.configure_train(2, record(START), ConfigRecord(), grid)))
    # Of four, one below: the share 1/4 is 1/4 under the quantile, and the norm grows by exp(0.4 / 4), but for noise.
    found = math.log(float(again.content.config_records["config"]["clip-norm"]) / 2.0)  # type: ignore[arg-type]
    assert found == pytest.approx(0.1, abs=0.4 * 8 * 0.05 / 4)
    assert strategy.reports[0].refused == 0
