"""How examples become a prompt: an instruction, demonstrations with their label words, and an open question.

>>> template = Template(instruction="Name the mood.\\n\\n", example="Text: {text}\\nMood:{label}")
>>> template.prefix([("what a day", " good")])
'Name the mood.\\n\\nText: what a day\\nMood: good\\n\\n'
>>> template.question("rain again")
'Text: rain again\\nMood:'

Nothing here may be chosen by looking at private examples: instruction and label words are public.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from hush import _check
from hush.errors import InvalidValue

Demonstration = tuple[str, str]  # a text and its label word
_TEXT, _LABEL = "{text}", "{label}"


@dataclass(frozen=True, kw_only=True)
class Template:
    """The public frame of a prompt. `example` holds {text} once and ends in {label}.

    A text is cut after `most_characters`, a public constant, and its line breaks become blanks: so that one example
    cannot look like several, nor push others out of the prompt.
    """

    instruction: str = ""
    example: str = "Input: {text}\nLabel:{label}"
    separator: str = "\n\n"
    most_characters: int = 400

    def __post_init__(self) -> None:
        if self.example.count(_TEXT) != 1 or not self.example.endswith(_LABEL) or self.example.count(_LABEL) != 1:
            raise InvalidValue(f"example must hold {_TEXT} once and end in {_LABEL}; got {self.example!r}.")
        _check.whole("most_characters", self.most_characters)

    def question(self, text: str) -> str:
        """The example up to its label."""
        return self.example.removesuffix(_LABEL).replace(_TEXT, self.clean(text))

    def prefix(self, demonstrations: Sequence[Demonstration]) -> str:
        """Everything before a question."""
        shown = [self.question(text) + label + self.separator for text, label in demonstrations]
        return self.instruction + "".join(shown)

    def clean(self, text: str) -> str:
        """The text as it stands in a prompt."""
        return " ".join(str(text).split())[: self.most_characters].rstrip()


@dataclass(frozen=True)
class Task:
    """A public task: its template, and the label word of each label, in the order of the labels' numbers."""

    template: Template
    labels: tuple[str, ...]


# The frames and words of Zhao, Wallace, Feng, Klein, Singh 2021 (appendix); nothing was tried out on the data.
TASKS: dict[str, Task] = {
    "trec": Task(
        Template(
            instruction="Classify the questions based on whether their answer type is a Number, Location, Person, "
            "Description, Entity, or Abbreviation.\n\n",
            example="Question: {text}\nAnswer Type:{label}",
        ),
        (" Abbreviation", " Description", " Entity", " Person", " Location", " Number"),
    ),
    "ag-news-sample": Task(
        Template(
            instruction="Classify the news articles into the categories of World, Sports, Business, and Technology."
            "\n\n",
            example="Article: {text}\nAnswer:{label}",
        ),
        (" World", " Sports", " Business", " Technology"),
    ),
    "sst2": Task(Template(example="Review: {text}\nSentiment:{label}"), (" Negative", " Positive")),
}
