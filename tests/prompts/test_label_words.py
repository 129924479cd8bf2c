"""Label words must be one token each; the command line says what to do when they are not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from tests.prompts import tiny_models

from hush.cli.main import run
from hush.errors import InvalidValue
from hush.prompts import label_tokens
from hush.prompts.templates import TASKS

PIECES = ("[UNK]", "Ab", "##brev", "##iation", "Description", "Entity", "Person", "Location", "Number", "acronym")
WORDS = "acronym,Description,Entity,Person,Location,Number"
pytestmark = pytest.mark.filterwarnings("ignore::DeprecationWarning")


def tokenizer() -> Any:
    """It cuts Abbreviation into three, as SmolLM2's does."""
    tokenizers = pytest.importorskip("tokenizers")
    from transformers import PreTrainedTokenizerFast

    vocabulary = {name: number for number, name in enumerate(PIECES)}
    inner = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    inner.pre_tokenizer = tokenizers.pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(tokenizer_object=inner, unk_token="[UNK]")


def test_all_words_that_do_not_fit_are_named() -> None:
    words = tokenizer()
    assert label_tokens(words, [" Entity", " Number"]) == [5, 8]
    with pytest.raises(InvalidValue, match="one token for this tokenizer, but ' Abbreviation' is 3 tokens; use others"):
        label_tokens(words, TASKS["trec"].labels)
    with pytest.raises(InvalidValue, match="' Abbreviation' is 3 tokens, 'Entity Person' is 2 tokens;"):
        label_tokens(words, [" Abbreviation", " Number", "Entity Person"])
    with pytest.raises(InvalidValue, match="does not know the word ' sheep'"):
        label_tokens(words, [" Entity", " sheep"])


def test_the_command_refuses_trec_in_one_line_that_says_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    tiny_models.made("GPT-2").float().save_pretrained(tmp_path / "model")
    tokenizer().save_pretrained(tmp_path / "model")
    how = ["prompt", "soft", "--data", "trec", "--model", str(tmp_path / "model"), "--epsilon", "3", "--delta", "1e-5"]
    capsys.readouterr()
    assert run([*how, "--out", str(tmp_path / "out")]) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith("hush: a label word must be one token for this tokenizer, but ' Abbreviation' is 3 tokens;")
    assert line.endswith("Give 6 by --label-words, or an encoder with --classifier.")
    assert run([*how, "--out", str(tmp_path / "out"), "--label-words", WORDS, "--folder", str(tmp_path)]) != 0
    assert "label word" not in capsys.readouterr().err  # these words pass; now the data are missing
    assert not (tmp_path / "out").exists()


def test_guide_and_help_say_which_task_fits_which_model(capsys: pytest.CaptureFixture[str]) -> None:
    run(["prompt", "soft", "--help"])
    told = " ".join(capsys.readouterr().out.split())
    assert "for trec, smollm2 needs other --label-words" in told
    guide = Path(__file__).resolve().parents[2] / "docs" / "guides" / "soft-prompts.md"
    assert f"--data trec --model smollm2 --label-words {WORDS}" in guide.read_text(encoding="utf-8")


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore")
def test_what_the_guide_says_of_smollm2_is_so() -> None:
    from hush.errors import MissingExtra
    from hush.prompts.known_models import load_language_model

    try:
        words: Any = load_language_model("smollm2")
    except MissingExtra as error:
        pytest.skip(str(error))
    for task in ("sst2", "ag-news-sample"):
        assert len(label_tokens(words.tokenizer, TASKS[task].labels)) == len(TASKS[task].labels)
    with pytest.raises(InvalidValue, match="' Abbreviation' is 3 tokens;"):
        label_tokens(words.tokenizer, TASKS["trec"].labels)
    assert len(label_tokens(words.tokenizer, [f" {word}" for word in WORDS.split(",")])) == 6
