"""The client's side: a mod that clips an update before it leaves the client.

    app = ClientApp(mods=[clip_update])

The server clips in any case, since it cannot trust a client to. With the mod it never sees more of an update than the
clipped one.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from hush.errors import InvalidValue, MissingExtra
from hush.federated.updates import clip_factor, norm_of, update_of

try:
    from flwr.app import Array, ArrayRecord, Context, Message, MessageType, MetricRecord
except ImportError:
    raise MissingExtra("hush.federated needs Flower; run: pip install 'hush[federated]'") from None

if TYPE_CHECKING:
    from flwr.clientapp.typing import ClientAppCallable

CLIP_NORM = "clip-norm"  # in the config that the strategy sends
CLIPPED = "clipped"  # the record of a reply whose update was above it, for a clip norm that follows the updates


def clip_update(message: Message, context: Context, call_next: ClientAppCallable) -> Message:
    """Clip what the client changed of the model to the clip norm that `PrivateFedAvg` sent.

    Raises:
        InvalidValue: another strategy asked, or the reply holds no finite update. Flower answers with an error, and the
            client adds nothing to the round.
    """
    if message.metadata.message_type != MessageType.TRAIN:
        return call_next(message, context)
    model = _plain(message.content.array_records.get("arrays", {}))
    config = message.content.config_records.get("config")
    clip_norm = None if config is None else config.get(CLIP_NORM)
    if not isinstance(clip_norm, float) or not clip_norm > 0:
        raise InvalidValue("the server sent no clip norm: clip_update goes with hush.federated.PrivateFedAvg.")
    reply = call_next(message, context)
    if not reply.has_error():
        _clip(reply, model, clip_norm)
    return reply


def _clip(reply: Message, model: dict[str, Any], clip_norm: float) -> None:
    update = update_of(model, _plain(reply.content.array_records.get("arrays", {})))
    if update is None:
        raise InvalidValue("the client's reply holds no finite update of the model under 'arrays'.")
    norm = norm_of(update)
    if norm <= clip_norm:
        return
    factor = clip_factor(norm, clip_norm)
    clipped = {name: Array((value + factor * update[name]).astype(value.dtype)) for name, value in model.items()}
    reply.content["arrays"] = ArrayRecord(array_dict=clipped)
    reply.content[CLIPPED] = MetricRecord({"above": 1})


def _plain(record: Any) -> dict[str, Any]:
    return {name: value.numpy() for name, value in record.items()}
