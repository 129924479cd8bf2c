"""A data set at hand: its training and test parts, and the public facts about it."""

from __future__ import annotations

from dataclasses import dataclass, field

from torch import Tensor
from torch.utils.data import TensorDataset

from hush.errors import InvalidValue


@dataclass(frozen=True, kw_only=True, eq=False)
class Dataset:
    """Training and test rows as tensors, with what may be said about them in public.

    The rows are private; every field but `train`, `test` and `people` is public. `people` holds, for each training
    row, the number of the person it belongs to, or is None where each row stands for itself.

    `num_examples` is a public figure for the number of training units (people, or rows), which a plan may use. It is
    None where nobody has declared one; the length of a private table is private too.
    """

    name: str
    train: TensorDataset = field(repr=False)
    test: TensorDataset | None = field(repr=False)
    num_classes: int | None  # None: the target is a number between 0 and 1
    input_shape: tuple[int, ...]
    num_examples: int | None
    source: str
    licence: str
    people: Tensor | None = field(default=None, repr=False)
    target_range: tuple[float, float] | None = None  # of a number, in its own unit
    notes: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        for part in (self.train, self.test):
            if part is not None and part.tensors[0].shape[1:] != self.input_shape:
                raise InvalidValue(
                    f"input_shape must be that of the rows, {tuple(part.tensors[0].shape[1:])}; got {self.input_shape}."
                )
        if self.people is not None and len(self.people) != len(self.train):
            raise InvalidValue("people must hold one number for each training row.")

    @property
    def unit(self) -> str:
        """What one unit of privacy is: "person" where rows belong to people, "example" otherwise."""
        return "example" if self.people is None else "person"
