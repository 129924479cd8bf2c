"""Each example's squared gradient norm, parameter by parameter."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor

from hush.gradients.layers import tells_both
from hush.gradients.shared import Shared, dots, squared
from hush.gradients.uses import GHOST_AT, Few, Lookup, Outer, Rows, Sums, Use

_WEAK = 1e-3  # below this share of its terms, a squared norm in single precision is off by 1e-4 or more
_NEAR = 0.5  # ghost norms from this share of their limit on are no quicker than gradients, whose sum is then at hand
_ROOM = 1 << 27  # bytes that such gradients may take together; where they would take more, the norms are ghost norms


def measure(uses: dict[str, list[Use]]) -> dict[str, Tensor]:
    """Each example's squared norm for each parameter; the uses (at most one of each kind) become those for the sum.

    What is measured for a layer's weight may be of its bias too.

    Norms from products of products lose their digits where an example's gradient is far smaller than what it is made
    of. For such examples the gradient is written out, and both the norm and the sum are taken from it.
    """
    outers = [use for found in uses.values() for use in found if type(use) is Outer and use.places > 1]
    share = _ghost_share(uses) if outers else GHOST_AT
    shared = Shared(side for use in outers if use.is_ghostly(share) for side in use.held())
    del outers
    squares, terms = {}, {}
    for name, found in uses.items():
        uses[name] = found = _written_out(found, share)
        squares[name], most = _squares(found, shared)
        if most is not None:
            terms[name] = most
    for name, weak in _weak(squares, terms).items():
        index = torch.nonzero(weak)[:, 0]
        taken = [use.take(index) for use in uses[name]]
        rows = torch.stack([use.rows() for use in taken]).sum(0)
        exact = squared(rows)
        if tells_both(taken[0]):
            own = taken[0].of_bias().rows()
            exact += squared(own)
            uses[taken[0].bias] = [Few(index, own, len(weak))]
        squares[name] = squares[name].index_copy(0, index, exact)
        uses[name] = [*(use.without(weak) for use in uses[name]), Few(index, rows, len(weak))]
    return squares


def _ghost_share(uses: dict[str, list[Use]]) -> float:
    """Up to which share of their limit norms are ghost norms."""
    alone = [found[0] for found in uses.values() if len(found) == 1]
    ghosts = [use for use in alone if isinstance(use, Outer) and use.is_ghostly()]
    near = sum(use.size for use in ghosts if not use.is_ghostly(_NEAR * GHOST_AT))
    return _NEAR * GHOST_AT if near <= _ROOM else GHOST_AT


def _written_out(uses: list[Use], share: float) -> list[Use]:
    """The gradients themselves where they are quicker than a ghost norm and have room: the sum is theirs then."""
    first = uses[0]
    is_shared = isinstance(first, Outer) and (first.places == 1 or first.is_ghostly(share))
    if len(uses) > 1 or is_shared or not isinstance(first, Outer | Sums):
        return uses
    uses.clear()  # so that nothing is kept twice
    return [Rows(first.rows())]


def _weak(squares: dict[str, Tensor], terms: dict[str, Tensor]) -> dict[str, Tensor]:
    """For parameters with such examples: which have lost too many digits."""
    if not terms:
        return {}
    found = torch.stack([squares[name] for name in terms])
    weak = ~(found > _WEAK * torch.stack(list(terms.values())))  # NaN counts as weak
    if not bool(weak.any()):
        return {}
    return {name: mine for name, mine in zip(terms, weak, strict=True) if bool(mine.any())}


def _squares(uses: Sequence[Use], shared: Shared) -> tuple[Tensor, Tensor | None]:
    """Squared norms, and the size of the terms that they are the sum of; None where nothing cancels."""
    if len(uses) == 1:
        return uses[0].measure(shared)
    kinds = {type(use): use for use in uses}
    lookup, outer = kinds.get(Lookup), kinds.get(Outer)
    if len(uses) == 2 and isinstance(lookup, Lookup) and isinstance(outer, Outer):
        squares, _ = lookup.measure(shared)
        outside, terms = outer.measure(shared)
        return squares + outside + 2 * _cross(lookup, outer), squares + (outside if terms is None else terms)
    return squared(torch.stack([use.rows() for use in uses]).sum(0)), None


def _cross(lookup: Lookup, outer: Outer) -> Tensor:
    """<gradient of the lookup, gradient of the outer>, for each example: tied embeddings."""
    right, left = outer.sides()
    likeness = right @ lookup.outputs.mT  # (batch, places of the outer, places of the lookup)
    index = lookup.index[:, None, :].expand(-1, outer.places, -1)
    return dots(likeness, left.gather(2, index))
