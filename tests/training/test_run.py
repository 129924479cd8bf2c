"""Runs on disk: whole, without pickle, and only as good as their ledger."""

from __future__ import annotations

import json
import pickle
import pickletools
import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import Tensor, nn
from torch.utils.data import TensorDataset

from hush import Ledger, events
from hush.errors import InvalidValue, LedgerTampered, TrainedBefore, UnreadableFile
from hush.training import AdaptiveClipping, Run, TrainingPlan, fit
from hush.training.files import pack, remove_scratch, unpack
from hush.training.progress import Progress

Make = Callable[..., TrainingPlan]


def loss_fn(model: nn.Module, x: Tensor, y: Tensor) -> Tensor:
    return nn.functional.cross_entropy(model(x), y, reduction="none")


@pytest.fixture
def run(make_plan: Make, model: nn.Module, data: TensorDataset) -> Run:
    plan = make_plan(steps=6, adaptive=AdaptiveClipping(quantile=0.5, count_stddev=3.0))
    return fit(plan, model, data, loss_fn=loss_fn, optimizer=torch.optim.SGD(model.parameters(), lr=0.1))


def test_a_saved_run_comes_back(run: Run, model: nn.Module, tmp_path: Path) -> None:
    run.save(tmp_path / "runs" / "first")
    back = Run.load(tmp_path / "runs" / "first")
    assert (back.plan, back.guarantee, back.event, back.steps) == (run.plan, run.guarantee, run.event, run.steps)
    assert back.history == run.history
    assert back.ledger.verify().heads == run.ledger.verify().heads
    other = nn.Sequential(nn.Linear(4, 5), nn.Tanh(), nn.Linear(5, 3))
    back.load_into(other)
    assert all(torch.equal(value, model.state_dict()[name]) for name, value in other.state_dict().items())
    back.save(tmp_path / "copy")
    assert Run.load(tmp_path / "copy").guarantee == run.guarantee


def test_nothing_on_disk_is_a_pickle(run: Run, tmp_path: Path) -> None:
    run.save(tmp_path)
    names = sorted(path.name for path in tmp_path.iterdir())
    assert names == ["ledger.db", "model.safetensors", "not_private.json", "run.json"]
    json.loads((tmp_path / "run.json").read_text())
    assert not any(zipfile.is_zipfile(path) or is_pickle(path.read_bytes()) for path in tmp_path.iterdir())
    assert is_pickle(pickle.dumps({"weights": [1.0]}))


def test_what_a_killed_process_left_is_removed_and_nothing_else(tmp_path: Path) -> None:
    kept = {"run.json", ".hidden", "notes.tmp", ".gitignore"}
    for name in (*kept, ".model.safetensors.0123456789ab.tmp", ".tmp8TGiva"):
        (tmp_path / name).write_text("")
    remove_scratch(tmp_path)
    assert {path.name for path in tmp_path.iterdir()} == kept


def is_pickle(content: bytes) -> bool:
    """A first byte alone does not tell: a safetensors file begins with the length of its header."""
    try:
        return bool(list(pickletools.genops(content)))
    except ValueError:
        return False


def test_what_was_read_without_noise_is_apart(run: Run, tmp_path: Path) -> None:
    run.save(tmp_path)
    shown = (tmp_path / "run.json").read_text()
    assert "loss" not in json.loads(shown)
    assert str(run.history.loss[0]) not in shown
    (tmp_path / "not_private.json").unlink()  # somebody passes the run on without it
    assert Run.load(tmp_path).history.loss == []


def test_saving_twice_is_fine_and_another_run_is_not_overwritten(
    run: Run, make_plan: Make, model: nn.Module, data: TensorDataset, tmp_path: Path
) -> None:
    run.save(tmp_path)
    run.save(tmp_path)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    other = fit(make_plan(steps=1), model, data, loss_fn=loss_fn, optimizer=optimizer)
    with pytest.raises(InvalidValue, match="another run"):
        other.save(tmp_path)


def test_a_ledger_in_the_folder_is_never_replaced(run: Run, tmp_path: Path) -> None:
    ledger = Ledger(tmp_path / "ledger.db")
    ledger.account("team").charge(events.PureDP(epsilon=0.5), note="of a colleague")
    before = (tmp_path / "ledger.db").read_bytes()
    with pytest.raises(InvalidValue, match="charges that are not this run's"):
        run.save(tmp_path)
    assert (tmp_path / "ledger.db").read_bytes() == before
    assert [path.name for path in tmp_path.iterdir()] == ["ledger.db"]


def test_a_file_that_is_no_ledger_is_never_replaced(run: Run, tmp_path: Path) -> None:
    (tmp_path / "ledger.db").write_text("something else")
    with pytest.raises(InvalidValue, match=r"ledger\.db"):
        run.save(tmp_path)
    assert (tmp_path / "ledger.db").read_text() == "something else"


def test_an_interrupted_run_is_never_overwritten(
    run: Run, make_plan: Make, model: nn.Module, data: TensorDataset, tmp_path: Path
) -> None:
    def stop(progress: Progress) -> None:
        if progress.step == 4:
            raise KeyboardInterrupt

    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with pytest.raises(KeyboardInterrupt), pytest.warns(TrainedBefore):
        fit(
            make_plan(), model, data, loss_fn=loss_fn, optimizer=optimizer, folder=tmp_path, callbacks=[stop],
            checkpoint_every=2,
        )  # fmt: skip
    before = Ledger(tmp_path / "ledger.db").verify()
    with pytest.raises(InvalidValue, match="interrupted"):
        run.save(tmp_path)
    (tmp_path / "checkpoint.safetensors").unlink()
    with pytest.raises(InvalidValue, match="charges that are not this run's"):
        run.save(tmp_path)
    assert Ledger(tmp_path / "ledger.db").verify() == before


def test_an_older_copy_of_the_runs_own_ledger_is_brought_up_to_date(run: Run, tmp_path: Path) -> None:
    run.save(tmp_path)
    run.ledger.account(run.account).charge(events.PureDP(epsilon=0.0), note="later")
    run.save(tmp_path)
    assert Ledger(tmp_path / "ledger.db").verify() == run.ledger.verify()


def test_an_edited_guarantee_is_refused(run: Run, tmp_path: Path) -> None:
    run.save(tmp_path)
    text = (tmp_path / "run.json").read_text()
    data = json.loads(text)
    data["guarantee"]["epsilon"] /= 2
    (tmp_path / "run.json").write_text(json.dumps(data))
    with pytest.raises(UnreadableFile, match="do not say the same"):
        Run.load(tmp_path)
    data = json.loads(text)
    data["event"]["of"][0]["times"] = 1
    (tmp_path / "run.json").write_text(json.dumps(data))
    with pytest.raises(UnreadableFile, match="do not say the same"):
        Run.load(tmp_path)


def test_an_edited_ledger_is_refused(run: Run, tmp_path: Path) -> None:
    import sqlite3

    run.save(tmp_path)
    connection = sqlite3.connect(tmp_path / "ledger.db")
    tables = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type = 'table'")]
    table = next(name for name in tables if "row" in name)
    connection.execute(f"UPDATE {table} SET count = 2 WHERE number = 1")
    connection.commit()
    connection.close()
    with pytest.raises(LedgerTampered):
        Run.load(tmp_path)


@pytest.mark.parametrize("name", ["run.json", "model.safetensors", "ledger.db"])
@pytest.mark.parametrize("damage", ["cut", "gone"])
def test_damaged_folders_are_refused(run: Run, tmp_path: Path, name: str, damage: str) -> None:
    run.save(tmp_path)
    path = tmp_path / name
    path.write_bytes(path.read_bytes()[:100]) if damage == "cut" else path.unlink()
    with pytest.raises(UnreadableFile):
        Run.load(tmp_path)


def test_a_run_on_a_shared_ledger_points_to_it(
    make_plan: Make, model: nn.Module, data: TensorDataset, tmp_path: Path
) -> None:
    ledger = Ledger(tmp_path / "shared.db")
    ledger.account("others")
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    run = fit(make_plan(), model, data, loss_fn=loss_fn, optimizer=optimizer, ledger=ledger, account="hospital")
    run.save(tmp_path / "run")
    assert not (tmp_path / "run" / "ledger.db").exists()
    back = Run.load(tmp_path / "run")
    assert back.guarantee == run.guarantee
    assert [account.name for account in back.ledger.accounts()] == ["hospital", "others"]


# State without pickle ------------------------------------------------------------------------------------------


def test_packed_state_comes_back() -> None:
    from collections import Counter

    state = {"a": [1, 2.5, None, True], 3: ("x", torch.arange(3)), "c": Counter({5: 2}), "d": {"e": torch.ones(2)}}
    tensors: dict[str, Tensor] = {}
    packed = json.loads(json.dumps(pack(state, tensors, "state")))
    back = unpack(packed, tensors)
    assert back["a"] == state["a"]
    assert back["c"] == Counter({5: 2})
    assert isinstance(back["c"], Counter)
    assert isinstance(back[3], tuple)
    assert torch.equal(back[3][1], torch.arange(3))
    assert torch.equal(back["d"]["e"], torch.ones(2))


def test_what_needs_pickle_is_refused_by_name() -> None:
    with pytest.raises(InvalidValue, match="scheduler/rule holds a function"):
        pack({"rule": lambda step: step}, {}, "scheduler")
    for wrong in ({"tensor": "gone"}, {"code": "x"}, [1]):
        with pytest.raises(UnreadableFile):
            unpack(wrong, {})
