"""Unmodified LSTM, GRU and plain recurrent layers: the same cells, step by step, so that the tape sees each product."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import torch
import torch.nn.functional as F
from torch import Tensor

from hush.gradients.layout import UNKNOWN, Layout, layout_of, mark
from hush.gradients.tape import _tensors, rule

if TYPE_CHECKING:
    from hush.gradients.tape import Tape

State = tuple[Tensor, ...]
Weight = Tensor | None


def _lstm_cell(gates: Tensor, state: State, weight: Tensor, bias: Weight, project: Weight = None) -> State:
    hidden, memory = state
    inlet, forget, content, outlet = (gates + F.linear(hidden, weight, bias)).chunk(4, -1)
    memory = torch.sigmoid(forget) * memory + torch.sigmoid(inlet) * torch.tanh(content)
    hidden = torch.sigmoid(outlet) * torch.tanh(memory)
    return (hidden if project is None else F.linear(hidden, project)), memory


def _gru_cell(gates: Tensor, state: State, weight: Tensor, bias: Weight, project: Weight = None) -> State:
    (hidden,) = state
    reset, update, content = gates.chunk(3, -1)
    reset_hidden, update_hidden, content_hidden = F.linear(hidden, weight, bias).chunk(3, -1)
    kept = torch.sigmoid(update + update_hidden)
    fresh = torch.tanh(content + torch.sigmoid(reset + reset_hidden) * content_hidden)
    return (fresh + kept * (hidden - fresh),)


def _tanh_cell(gates: Tensor, state: State, weight: Tensor, bias: Weight, project: Weight = None) -> State:
    return (torch.tanh(gates + F.linear(state[0], weight, bias)),)


def _relu_cell(gates: Tensor, state: State, weight: Tensor, bias: Weight, project: Weight = None) -> State:
    return (torch.relu(gates + F.linear(state[0], weight, bias)),)


_CELLS: dict[Any, Any] = {
    torch.lstm: _lstm_cell,
    torch.gru: _gru_cell,
    torch.rnn_tanh: _tanh_cell,
    torch.rnn_relu: _relu_cell,
}


@rule(*_CELLS)
def recurrent(tape: Tape, func: Any, args: Any, kwargs: Any) -> Any:
    """All layers and directions."""
    if kwargs or len(args) != 9 or isinstance(args[3], Tensor | list | tuple):
        raise tape.no_rule(func, list(_tensors(args)), "packed sequences")
    inputs, states, weights, has_bias, layers, dropout, training, both_ways, batch_first = args
    states = tuple(states) if isinstance(states, tuple | list) else (states,)
    place = layout_of(inputs)
    if place is not None and (inputs.ndim != 3 or place.axis != (0 if batch_first else 1)):
        raise tape.no_rule(func, list(weights), "the examples lie on the axis of time or features")
    states = tuple(_started(state, inputs.shape[0 if batch_first else 1], place) for state in states)
    with tape:
        sequence = inputs.transpose(0, 1) if batch_first else inputs  # (time, batch, features)
        finals: list[State] = []
        directions = 2 if both_ways else 1
        per_cell = len(weights) // (layers * directions)
        for layer in range(layers):
            results = []
            for direction in range(directions):
                number = layer * directions + direction
                mine = weights[number * per_cell : (number + 1) * per_cell]
                begin = tuple(state[number] for state in states)
                steps, final = _pass(_CELLS[func], sequence, begin, mine, has_bias, backwards=direction == 1)
                results.append(steps)
                finals.append(final)
            sequence = torch.cat(results, -1) if directions == 2 else results[0]
            if dropout and training and layer < layers - 1:
                sequence = F.dropout(sequence, dropout)
        ends = tuple(torch.stack(parts) for parts in zip(*finals, strict=True))
        return (sequence.transpose(0, 1) if batch_first else sequence, *ends)


def _started(state: Tensor, extent: int, place: Layout | None) -> Tensor:
    """Return the first state, (layers, batch, features), marked like the inputs where it is a constant.

    A constant is no example's, so it may count as each example's own. As such its product with a weight is noted at
    once, and not as a weight of its own.
    """
    if layout_of(state) is not None or state.requires_grad or place is None or place == UNKNOWN:
        return state
    if state.ndim != 3 or state.shape[1] != extent:
        return state
    alias = state.detach()  # the mark must not stay on a tensor of the model
    mark(alias, Layout(1, place.outer, place.inner))
    return alias


def _pass(
    cell: Any, sequence: Tensor, state: State, weights: Sequence[Tensor], has_bias: bool, *, backwards: bool
) -> tuple[Tensor, State]:
    """One layer in one direction: its outputs at all times, and its last state."""
    inward, recur = weights[0], weights[1]
    bias_in, bias_recur = (weights[2], weights[3]) if has_bias else (None, None)
    project = weights[-1] if len(weights) in (3, 5) else None
    gates = F.linear(sequence, inward, bias_in).unbind(0)
    outputs: list[Tensor] = []
    for gate in reversed(gates) if backwards else gates:
        state = cell(gate, state, recur, bias_recur, project)
        outputs.append(state[0])
    return torch.stack(outputs[::-1] if backwards else outputs), state
