"""The `hush` command: its subcommands, its help, and one clear line when something is wrong.

Exit codes: 0 fine, 1 the claim does not hold (over budget), 2 bad input, 70 a fault. Results go to stdout, everything
else to stderr. Only typer is loaded here; a command loads what it needs when it runs.
"""

from __future__ import annotations

import gc
import os
import sys
import traceback
from collections.abc import Sequence
from contextlib import suppress
from typing import Annotated, Any

import typer

from hush.cli import attack, audit, calibrate, doctor, epsilon, explain, ledger, pate, plan, prompt, report, train
from hush.cli.output import one_line
from hush.errors import BudgetExceeded, HushError

_QUICK = frozenset({"epsilon", "calibrate", "explain", "ledger", "report"})
FINE, DOES_NOT_HOLD, BAD_INPUT, FAULT, INTERRUPTED = 0, 1, 2, 70, 130

_EXAMPLES = """
\b
Examples:
  What does a training run cost?
    hush epsilon --noise-multiplier 4 --sampling-prob 0.01 --steps 10000 --delta 1e-5
\b
  How do the accountants compare, as a table and as a picture?
    hush epsilon --noise-multiplier 4 --sampling-prob 0.01 --steps 10000 --delta 1e-5 \\
         --method all --plot epsilon.html
\b
  How much noise does a budget ask for? Leave out the one that is to be found.
    hush calibrate --epsilon 1 --delta 1e-5 --sampling-prob 0.01 --steps 10000
    hush calibrate --epsilon 1 --delta 1e-5 --sampling-prob 0.01 --noise-multiplier 4
\b
  Why is it this number, and which theorem says so?
    hush explain --noise-multiplier 4 --sampling-prob 0.01 --steps 10000 --delta 1e-5
\b
  Move sliders and see what a training costs, on a page of this machine
    hush plan
\b
  Train privately: a data set by name, or a table of your own
    hush train --data digits --epsilon 3
    hush train --data my.csv --target outcome --write-schema schema.json
\b
  Let teachers on disjoint rows vote on public ones, and train a student
    hush pate --data mnist --teachers 250 --epsilon 2
\b
  Can this model be trained privately, by which rules, at what cost?
    hush doctor models.py:make
\b
  Who was trained on? With and without privacy
    hush attack membership --data digits
    hush attack membership --data digits --epsilon 1
\b
  Does an attack contradict what a run claims?
    hush audit runs/digits-1
\b
  What does a run prove, and what does it mean for one person?
    hush report runs/digits-1 --open
\b
  What was spent, and was the ledger edited?
    hush ledger show budget.db
    hush ledger verify budget.db
\b
Every command takes --json. Errors are one line on stderr. Exit codes: 0 fine, 1 the claim does not hold, 2 bad
input, 70 a fault of Hush.
"""

app = typer.Typer(
    add_completion=False,
    rich_markup_mode=None,
    pretty_exceptions_enable=False,
    epilog=_EXAMPLES,
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
)
app.command("epsilon", short_help="What a training run costs.")(epsilon.epsilon)
app.command("calibrate", short_help="The noise that a budget asks for.")(calibrate.calibrate)
app.command("explain", short_help="Why it costs that, by theorem.")(explain.explain)
app.command("train", short_help="Train a model privately.")(train.train)
app.command("pate", short_help="Teachers vote, a student learns.")(pate.pate)
app.command("report", short_help="What a run proves, as a page.")(report.report)
app.command("audit", short_help="Attack a training and hold that against its guarantee.")(audit.audit)
app.command("plan", short_help="Plan a training on a local page.")(plan.plan)
app.command("doctor", short_help="Can this model be trained privately?")(doctor.doctor)
app.add_typer(attack.app, name="attack", short_help="What does a model or a release tell?")
app.add_typer(prompt.app, name="prompt", short_help="Adapt a language model privately.")
app.add_typer(ledger.app, name="ledger", short_help="What was spent, and is it whole?")


def _show_version(wanted: bool) -> None:
    if wanted:
        from hush import __version__

        typer.echo(f"hush {__version__}")
        raise typer.Exit


@app.callback(invoke_without_command=True)
def start(
    context: typer.Context,
    version: Annotated[
        bool, typer.Option("--version", callback=_show_version, is_eager=True, help="Print the version and exit.")
    ] = False,
) -> None:
    """Machine learning with differential privacy: know exactly what it costs."""
    if context.invoked_subcommand is None:
        typer.echo(context.get_help())


def main() -> None:
    """Run the command line and leave with its exit code."""
    for stream in (sys.stdout, sys.stderr):
        with suppress(AttributeError, ValueError):  # a terminal that cannot show a letter gets a question mark
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    if sys.argv[1:2] and sys.argv[1] in _QUICK:
        _start_quickly()
    code = run(sys.argv[1:])
    try:
        sys.stdout.flush()
    except BrokenPipeError:  # the reader, such as head, has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    sys.exit(code)


def _start_quickly() -> None:
    """For commands that are over in a moment: no pool of threads for short vectors, no search for garbage on import."""
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")
    gc.set_threshold(100_000)


def run(arguments: Sequence[str]) -> int:
    """Run one command; every expected error becomes one line on stderr and an exit code."""
    command = _plain_help(typer.main.get_command(app))
    if own_code := sys.modules.get("hush.cli.user_code"):
        own_code.LOADED.clear()
    try:
        code = command.main(args=list(arguments), prog_name="hush", standalone_mode=False)
        return code if isinstance(code, int) else FINE
    except BudgetExceeded as error:
        return _complain(error, DOES_NOT_HOLD)
    except HushError as error:
        return _complain(error, BAD_INPUT)
    except BrokenPipeError:
        return FINE
    except OSError as error:
        return _complain(f"{error.filename or 'a file'}: {error.strerror or error}", BAD_INPUT)
    except (KeyboardInterrupt, typer.Abort):
        return _complain("interrupted.", INTERRUPTED)
    except Exception as error:
        if hasattr(error, "format_message"):  # what typer calls a usage error, in all its versions
            return _complain(_usage(error), BAD_INPUT)
        return _unexpected(error)


def _plain_help(command: Any) -> Any:
    """The command with help as it is read: some versions of typer put a backslash before every bracket."""
    help_of = command.get_help
    command.get_help = lambda context: help_of(context).replace("\\[", "[")
    for other in getattr(command, "commands", {}).values():
        _plain_help(other)
    return command


def _unexpected(error: Exception) -> int:
    """Where the user's own code takes part it is taken to be its error; its text may hold rows, and is not shown."""
    own_code = sys.modules.get("hush.cli.user_code")
    if own_code is None or not own_code.LOADED or os.environ.get("HUSH_TRACEBACK"):
        traceback.print_exception(error)
        return FAULT if own_code is None or not own_code.LOADED else BAD_INPUT
    return _complain(f"{own_code.place_of(error)}; HUSH_TRACEBACK=1 shows all of it.", BAD_INPUT)


def _usage(error: Any) -> str:
    context = getattr(error, "ctx", None)
    path = "hush" if context is None else context.command_path
    return f"{one_line(error.format_message()).rstrip('.')}; see: {path} --help"


def _complain(message: object, code: int) -> int:
    typer.echo(f"hush: {one_line(str(message))}", err=True)
    return code


if __name__ == "__main__":
    main()
