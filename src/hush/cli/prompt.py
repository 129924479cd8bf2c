"""`hush prompt soft|pate|generate`: adapt a frozen language model to private examples."""

from __future__ import annotations

import typer

from hush.cli import prompt_pate, prompt_soft

app = typer.Typer(help="Adapt a frozen language model to private examples.", rich_markup_mode=None)
app.command("soft", short_help="Train vectors in front of a frozen model.")(prompt_soft.soft)
app.command("pate", short_help="Prompts of private texts vote on public ones.")(prompt_pate.pate)
app.command("generate", short_help="Made-up examples that may be published.")(prompt_pate.generate)
