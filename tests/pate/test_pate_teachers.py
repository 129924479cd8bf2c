"""Teachers: each learns from its shard alone, failures stay single, interrupted work goes on."""

from __future__ import annotations

import copy
import json
from pathlib import Path
from typing import Any

import numpy
import pytest
import torch
from sklearn.linear_model import RidgeClassifier
from sklearn.tree import DecisionTreeClassifier
from torch import Tensor, nn

from hush import Rng
from hush.errors import InvalidValue, ResumeRefused, UnreadableFile
from hush.pate import VoteCounts, train_teachers
from hush.pate.batched import Stack, predict, train_block
from hush.pate.kernel_teacher import KernelTeacher
from hush.pate.recipe import Recipe, draw_rows
from hush.pate.single import classes, train_module
from hush.pate.strokes import strokes

QUICK = Recipe(steps=20, rows_per_step=8, learning_rate=0.05)


def blobs(rows: int = 400, num_classes: int = 3) -> tuple[numpy.ndarray[Any, Any], numpy.ndarray[Any, Any]]:
    stream = numpy.random.Generator(numpy.random.PCG64(5))
    y = stream.integers(num_classes, size=rows)
    centres = 4 * numpy.eye(num_classes, 4)
    return (centres[y] + stream.normal(size=(rows, 4))).astype(numpy.float32), y


def network() -> nn.Module:
    return nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 3))


def convolving() -> nn.Module:
    return nn.Sequential(nn.Unflatten(1, (1, 2, 2)), nn.Conv2d(1, 3, 2), nn.ReLU(), nn.Flatten(), nn.Linear(3, 3))


def own_function(X: Any, y: Any) -> Any:
    fitted = DecisionTreeClassifier(max_depth=3, random_state=0).fit(X, y)
    return fitted.predict


MAKERS = {
    "class": DecisionTreeClassifier,
    "estimator": RidgeClassifier(),
    "factory": lambda: KernelTeacher(3, sharpness=0.1),
    "function": own_function,
    "module factory": network,
    "convolution": convolving,
    "module": network(),
}


@pytest.mark.parametrize("name", MAKERS)
def test_every_kind_of_teacher_votes_well(name: str) -> None:
    X, y = blobs()
    teachers = train_teachers(
        MAKERS[name],
        X,
        y,
        10,
        num_classes=3,
        recipe=Recipe(steps=120, rows_per_step=8, learning_rate=0.03),
        rng=Rng.from_seed(3),
    )
    votes = teachers.votes(X)
    assert isinstance(votes, VoteCounts)
    assert votes.num_teachers == 10
    assert teachers.failures == {}
    assert (votes.counts.argmax(axis=1) == y).mean() > 0.85
    labels = teachers.predict(X)
    assert labels.shape == (10, len(X))
    assert numpy.array_equal(VoteCounts.from_labels(labels, 3).counts, votes.counts)


class Witness:
    """A teacher that remembers the rows it saw."""

    seen: list[list[int]] = []  # noqa: RUF012

    def fit(self, X: Any, y: Any) -> Witness:
        Witness.seen.append([int(value) for value in X[:, 0]])
        return self

    def predict(self, X: Any) -> Any:
        return numpy.zeros(len(X), int)


def test_teachers_see_disjoint_rows_and_whole_people() -> None:
    Witness.seen = []
    rows = numpy.arange(300)
    people = rows // 3
    train_teachers(Witness, rows[:, None], rows % 2, 12, people, num_classes=2, rng=Rng.from_seed(1))
    assert len(Witness.seen) == 12
    assert sorted(row for shard in Witness.seen for row in shard) == rows.tolist()
    homes = [{row // 3 for row in shard} for shard in Witness.seen]
    assert sum(len(home) for home in homes) == 100  # no person in two shards


@pytest.mark.parametrize("make", [network, convolving], ids=["linear", "convolution"])
@pytest.mark.parametrize("optimizer", ["adam", "sgd"])
def test_stacked_training_equals_training_alone(make: Any, optimizer: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The same start and the same rows in each step: the weights are those of each module trained by itself."""

    def all_rows(sizes: list[int], count: int, stream: torch.Generator) -> Tensor:
        return torch.arange(count).expand(len(sizes), count)

    monkeypatch.setattr("hush.pate.batched.draw_rows", all_rows)
    monkeypatch.setattr("hush.pate.single.draw_rows", all_rows)
    X, y = (torch.from_numpy(part) for part in blobs(60))
    rows = [numpy.arange(start, start + 20) for start in (0, 20, 40)]
    recipe = Recipe(steps=6, rows_per_step=20, learning_rate=0.02, optimizer=optimizer)
    modules = [make() for _ in rows]
    alone = [copy.deepcopy(module) for module in modules]
    stack = train_block(modules, X, y, rows, recipe, torch.Generator())
    for place, (module, shard) in enumerate(zip(alone, rows, strict=True)):
        train_module(module, X[shard], y[shard], recipe, torch.Generator())
        for name, value in module.state_dict().items():
            assert torch.allclose(stack.state[name][place], value, atol=2e-5), (place, name)


def mixed_up(rows: Tensor, stream: torch.Generator) -> Tensor:
    """An augmentation that mixes whatever rows it is given."""
    return rows + 0.1 * rows.mean(dim=0)


@pytest.mark.parametrize("augment", [None, mixed_up], ids=["plain", "mixing"])
@pytest.mark.parametrize("change", ["infinite row", "many more rows", "fewer rows"])
def test_a_shard_changes_its_own_teacher_only(change: str, augment: Any) -> None:
    """What the cost of a vote rests on: not one bit of the other teachers moves, whatever happens to one shard."""
    X, y = (torch.from_numpy(part) for part in blobs(150))
    rows = [numpy.arange(0, 20), numpy.arange(20, 33), numpy.arange(33, 50)]
    other_X, other_rows = X.clone(), list(rows)
    if change == "infinite row":
        other_X[0] = torch.inf
    else:
        other_rows[0] = numpy.arange(50, 150) if change == "many more rows" else rows[0][:1]
    start = [network() for _ in rows]
    recipe = Recipe(steps=20, rows_per_step=8, learning_rate=0.05, augment=augment)
    first, second = (
        train_block(copy.deepcopy(start), data, y, shards, recipe, torch.Generator().manual_seed(1)).state
        for data, shards in ((X, rows), (other_X, other_rows))
    )
    assert all(torch.equal(value[1:], second[name][1:]) for name, value in first.items())
    assert not torch.equal(first["0.weight"][0], second["0.weight"][0])


def test_rows_are_drawn_from_the_own_shard() -> None:
    drawn = draw_rows([1, 5, 300], 4000, torch.Generator().manual_seed(2))
    assert drawn.min(dim=1).values.tolist() == [0, 0, 0]
    assert drawn.max(dim=1).values.tolist() == [0, 4, 299]
    assert (torch.bincount(drawn[1]) > 600).all()
    with pytest.raises(InvalidValue, match="without rows"):
        train_block([network()], torch.zeros(1, 4), torch.zeros(1).long(), [numpy.array([], int)], QUICK,
                    torch.Generator())  # fmt: skip


def test_a_teacher_that_is_not_finite_is_named_and_votes_by_rule() -> None:
    X, y = blobs(200)
    X[0] = numpy.nan
    teachers = train_teachers(network, X, y, 5, recipe=QUICK, rng=Rng.from_seed(2))
    assert list(teachers.failures.values()) == ["not finite"]
    (broken,) = teachers.failures
    assert set(teachers.predict(X[1:])[broken]) == {broken % 3}
    assert teachers.votes(X[1:]).num_teachers == 5


class Fragile(DecisionTreeClassifier):  # type: ignore[misc]
    def fit(self, X: Any, y: Any, **rest: Any) -> Any:
        if (X[:, 0] == 77).any():
            raise RuntimeError("the secret row is 77")
        return super().fit(X, y, **rest)


@pytest.mark.parametrize("workers", [1, 2])
def test_a_failure_is_named_without_its_text_and_loses_nobody(workers: int) -> None:
    X, y = blobs(200)
    X[10, 0] = 77
    teachers = train_teachers(Fragile, X, y, 8, num_classes=3, workers=workers, rng=Rng.from_seed(4))
    assert list(teachers.failures.values()) == ["RuntimeError"]
    assert "77" not in repr(teachers)
    (broken,) = teachers.failures
    votes = teachers.votes(X)
    assert votes.num_teachers == 8
    assert set(teachers.predict(X)[broken]) == {broken % 3}
    assert (votes.counts.argmax(axis=1) == y).mean() > 0.8


@pytest.mark.parametrize("wrong", [lambda X: ["a"] * len(X), lambda X: [7] * len(X), lambda X: [0]])
def test_a_predictor_that_talks_nonsense_is_a_failure(wrong: Any) -> None:
    X, y = blobs(40)
    teachers = train_teachers(lambda X, y: wrong, X, y, 2, num_classes=3)
    assert teachers.votes(X).num_teachers == 2
    assert set(teachers.failures) == {0, 1}


def test_more_teachers_than_some_shards_have_rows() -> None:
    """Hashed shards may be empty; such a teacher is named and votes by rule."""
    X, y = blobs(12)
    teachers = train_teachers(network, X, y, 12, recipe=QUICK, rng=Rng.from_seed(0))
    assert "no rows" in teachers.failures.values()
    assert teachers.votes(X).num_teachers == 12


def test_a_module_with_batch_normalisation_is_trained_alone() -> None:
    X, y = blobs(300)

    def make() -> nn.Module:
        return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 3))

    teachers = train_teachers(make, X, y, 4, recipe=Recipe(steps=80, rows_per_step=16, learning_rate=0.03))
    assert (teachers.votes(X).counts.argmax(axis=1) == y).mean() > 0.85


# A folder -------------------------------------------------------------------------------------------------------


def kept(folder: Path, **changed: Any) -> Any:
    X, y = blobs(200)
    arguments: dict[str, Any] = {"num_teachers": 6, "teachers_at_once": 2, "recipe": QUICK, "folder": folder}
    return train_teachers(network, X, y, **{**arguments, **changed})


def test_an_interrupted_run_goes_on_with_the_next_block(tmp_path: Path) -> None:
    X, _ = blobs(200)
    first = kept(tmp_path / "a").predict(X)
    (tmp_path / "a" / "block-00001.safetensors").unlink()
    stamp = (tmp_path / "a" / "block-00000.safetensors").stat().st_mtime_ns
    second = kept(tmp_path / "a").predict(X)
    assert (tmp_path / "a" / "block-00000.safetensors").stat().st_mtime_ns == stamp
    assert numpy.array_equal(first[[0, 1, 4, 5]], second[[0, 1, 4, 5]])


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"num_teachers": 8}, "num_teachers"),
        ({"recipe": Recipe(steps=21, rows_per_step=8, learning_rate=0.05)}, "recipe"),
        ({"relation": "replace_one"}, "relation"),
        ({"groups": list(range(200))}, "groups"),
        ({"teachers_at_once": 3}, "teachers_at_once"),
    ],
)
def test_a_changed_setting_is_refused(tmp_path: Path, changed: dict[str, Any], named: str) -> None:
    kept(tmp_path)
    with pytest.raises(ResumeRefused, match=named):
        kept(tmp_path, **changed)


def test_changed_rows_and_architectures_are_refused(tmp_path: Path) -> None:
    kept(tmp_path)
    X, y = blobs(200)
    X[3, 2] += 1
    rest: dict[str, Any] = {"num_teachers": 6, "teachers_at_once": 2, "recipe": QUICK, "folder": tmp_path}
    with pytest.raises(ResumeRefused, match="another X;"):
        train_teachers(network, X, y, **rest)
    with pytest.raises(ResumeRefused, match="architecture"):
        train_teachers(lambda: nn.Linear(4, 3), *blobs(200), **rest)


def test_a_broken_file_is_named(tmp_path: Path) -> None:
    kept(tmp_path)
    (tmp_path / "block-00002.safetensors").write_bytes(b"nonsense")
    with pytest.raises(UnreadableFile, match="block-00002"):
        kept(tmp_path).votes(blobs(200)[0])
    (tmp_path / "teachers.json").write_text("{}")
    with pytest.raises(UnreadableFile, match="edited"):
        kept(tmp_path)


def test_queries_keep_votes_and_forget_teachers(tmp_path: Path) -> None:
    X, y = blobs(200)
    queries = X[:20]
    arguments: dict[str, Any] = {"num_classes": 3, "queries": queries, "folder": tmp_path, "rng": Rng.from_seed(6)}
    teachers = train_teachers(DecisionTreeClassifier(random_state=0), X, y, 5, **arguments)
    again = train_teachers(DecisionTreeClassifier(random_state=0), X, y, 5, **arguments)
    assert numpy.array_equal(teachers.votes().counts, again.votes().counts)
    assert len(teachers.votes()) == 20
    with pytest.raises(InvalidValue, match="without rows"):
        teachers.votes(X)
    assert json.loads((tmp_path / "teachers.json").read_text())["private"] is True
    assert (tmp_path / "teachers.json").stat().st_mode & 0o077 == 0


# Arguments and parts --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"make_teacher": 3}, "make_teacher"),
        ({"make_teacher": lambda: 3}, "make_teacher"),
        ({"y": ["a"] * 40}, "whole numbers"),
        ({"y": [0] * 39}, "as many rows"),
        ({"y": [5] * 40}, "0 .. num_classes"),
        ({"engine": "cloud"}, "engine"),
        ({"num_teachers": 0}, "num_teachers"),
        ({"folder": "somewhere"}, "queries="),
        ({"make_teacher": nn.Linear(4, 2), "num_classes": None, "y": [2] * 40}, "each class"),
    ],
)
def test_bad_arguments_are_refused(changed: dict[str, Any], words: str) -> None:
    X, y = blobs(40)
    arguments = {"make_teacher": DecisionTreeClassifier, "X": X, "y": y, "num_teachers": 2, "num_classes": 3}
    with pytest.raises(InvalidValue, match=words):
        train_teachers(**{**arguments, **changed})


def test_votes_need_rows() -> None:
    X, y = blobs(40)
    with pytest.raises(InvalidValue, match="public rows"):
        train_teachers(DecisionTreeClassifier, X, y, 2, num_classes=3).votes()


def test_modules_of_two_architectures_are_refused() -> None:
    with pytest.raises(InvalidValue, match="one architecture"):
        Stack.of([nn.Linear(3, 2), nn.Linear(4, 2)])


def test_predictions_do_not_depend_on_the_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    stack = Stack.of([network() for _ in range(3)])
    rows = torch.randn(50, 4, generator=torch.Generator().manual_seed(0))
    whole = predict(stack, rows)
    monkeypatch.setattr("hush.pate.batched._MOST_NUMBERS", 7 * 3 * 4 * 8)
    assert numpy.array_equal(predict(stack, rows), whole)


def test_strokes_are_of_each_picture_alone() -> None:
    pictures = torch.rand(5, 1, 28, 28, generator=torch.Generator().manual_seed(1))
    together = strokes(pictures)
    apart = torch.cat([strokes(picture[None]) for picture in pictures])
    assert torch.allclose(together, apart, atol=1e-6)
    assert torch.allclose(torch.linalg.vector_norm(together, dim=1), torch.ones(5), atol=1e-5)
    assert strokes(torch.rand(2, 3, 32, 32)).shape[0] == 2
    assert strokes(torch.rand(2, 1, 8, 8)).shape == (2, 784)
    with pytest.raises(InvalidValue, match="pictures"):
        strokes(torch.rand(3, 784))


def test_the_kernel_teacher_solves_its_equations() -> None:
    """Against the closed form of kernel ridge regression, in double precision."""
    X, y = blobs(40)
    teacher = KernelTeacher(3, sharpness=0.3, ridge=0.1).fit(X, y)
    rows = X.astype(numpy.float64)
    kernel = numpy.exp(-0.3 * ((rows[:, None] - rows[None]) ** 2).sum(axis=2))
    scores = kernel @ numpy.linalg.solve(kernel + 0.1 * numpy.eye(40), 2 * numpy.eye(3)[y] - 1)
    assert numpy.array_equal(teacher.predict(X), scores.argmax(axis=1))
    assert set(KernelTeacher(3).fit(X[y == 1], y[y == 1]).predict(X)) == {1}  # a shard of one class


def test_classes_leave_the_mode_alone() -> None:
    module = nn.Sequential(nn.Dropout(0.9), nn.Linear(4, 3)).train()
    rows: Tensor = torch.randn(30, 4)
    assert numpy.array_equal(classes(module, rows), classes(module, rows))
    assert module.training
