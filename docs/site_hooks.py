"""What `make docs` does beside Markdown: it runs the notebooks and shows them as pages, and fills the reference.

A notebook is stored without outputs; its page is made from a run, in a folder of its own, each time the site is built.
An error in a cell ends the build, and so does an exported name that cannot be documented.
"""

from __future__ import annotations

import inspect
import logging
import re
import tempfile
import time
from importlib import import_module
from pathlib import Path
from typing import Any

OUTPUT = "prints"  # stands over what a cell gave
SECONDS = 600  # for a cell, on a busy machine
_log = logging.getLogger("mkdocs.hooks.site")


def on_files(files: Any, config: Any) -> Any:
    """Replace each notebook by a page."""
    from mkdocs.structure.files import File

    for file in [file for file in files if file.src_uri.endswith(".ipynb")]:
        files.remove(file)
        text = page_of(Path(file.abs_src_path))
        files.append(File.generated(config, file.src_uri.replace(".ipynb", ".md"), content=text))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Links to notebooks lead to their pages; a room of the reference is spelled out name by name."""
    linked = re.sub(r"(\]\([\w./-]+)\.ipynb\)", r"\1.md)", markdown)
    return re.sub(r"^::: (hush\.\w+)$", lambda found: _spelled_out(found[1]), linked, flags=re.MULTILINE)


def _spelled_out(name: str) -> str:
    """Every exported name of a package, from where it is defined: export lists are made when the package is loaded."""
    module = import_module(name)
    if not hasattr(module, "__all__") or not hasattr(module, "__path__"):
        return f"::: {name}"
    return "\n\n".join(_entry(name, item, getattr(module, item)) for item in module.__all__)


def _entry(room: str, name: str, thing: Any) -> str:
    if inspect.ismodule(thing):
        return f"::: {thing.__name__}"
    if inspect.isclass(thing) or inspect.isfunction(thing):
        home = f"{thing.__module__}.{thing.__qualname__}"
        return f"::: {home}" if home.startswith(f"{room}.") else f"## `{room}.{name}`\n\nSee [{home}][]."
    if doc := getattr(thing, "__doc__", None) if callable(thing) else None:  # an object that is called as a function
        return f"## `{room}.{name}`\n\n{inspect.cleandoc(doc)}"
    return f"## `{room}.{name}`\n\n`{thing!r}`"


def page_of(path: Path) -> str:
    """A notebook's cells and what they printed, as Markdown."""
    import nbformat
    from jupyter_client.manager import AsyncKernelManager
    from nbclient import NotebookClient

    start = time.perf_counter()
    notebook = nbformat.read(path, as_version=4)
    with tempfile.TemporaryDirectory() as desk:
        kernel = AsyncKernelManager(transport="ipc", ip=f"{desk}/kernel")  # files, not ports that others can reach
        place, quiet = {"metadata": {"path": desk}}, ["--log-level=40"]
        client = NotebookClient(notebook, km=kernel, timeout=SECONDS, resources=place, extra_arguments=quiet)
        client.execute()
    _log.info("ran %s in %.0f s", path.name, time.perf_counter() - start)
    return "\n\n".join(part for cell in notebook.cells for part in _parts(cell)) + "\n"


def _parts(cell: Any) -> list[str]:
    if cell.cell_type == "markdown":
        return [cell.source]
    shown = [text for output in cell.outputs if (text := _output(output))]
    return [f"```python\n{cell.source}\n```", *shown]


def _output(output: Any) -> str:
    if output.output_type == "stream":
        return _printed(output.text) if output.name == "stdout" else ""
    data = output.get("data", {})
    if "image/png" in data:
        return f'<img alt="picture" src="data:image/png;base64,{data["image/png"].strip()}">'
    return _printed(data["text/plain"]) if "text/plain" in data else ""


def _printed(text: str) -> str:
    """With a title, so that a reader tells it from the code above."""
    return f'```text title="{OUTPUT}"\n{text.rstrip()}\n```'
