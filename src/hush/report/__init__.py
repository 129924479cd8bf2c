"""Reports: what a run proves, cost, and means for one person, as a page, Markdown and JSON. Torch is not needed."""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from hush.report.about import describe as describe
    from hush.report.content import content_of as content_of
    from hush.report.files import text_of as text_of
    from hush.report.files import write as write
    from hush.report.of_audit import save_audit as save_audit
    from hush.report.reading import read as read
    from hush.report.subject import Line as Line
    from hush.report.subject import Plot as Plot
    from hush.report.subject import Scores as Scores
    from hush.report.subject import Subject as Subject

_HOME = {
    "Line": "subject",
    "Plot": "subject",
    "Scores": "subject",
    "Subject": "subject",
    "content_of": "content",
    "describe": "about",
    "read": "reading",
    "save_audit": "of_audit",
    "text_of": "files",
    "write": "files",
}

__all__ = sorted(_HOME)


def __getattr__(name: str) -> object:
    if name in _HOME:
        return getattr(import_module(f"{__name__}.{_HOME[name]}"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
