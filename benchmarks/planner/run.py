"""The planner's speed: `python -m benchmarks.planner.run`, some minutes; needs chromium with chromedriver.

On the server: processor time of one request, from the first byte of the question to the last of the answer, by calling
the application as its server does; each request is asked in several passes, and its best time counts: what else the
machine does can only add to it. In the browser: from a slider's event to the first frame that shows the new numbers.
"""

from __future__ import annotations

import asyncio
import itertools
import json
import math
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import MutableMapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
from selenium import webdriver
from selenium.webdriver.chrome.options import Options
from selenium.webdriver.chrome.service import Service

from hush.planner import server
from hush.planner.doors import Keys
from hush.planner.question import FIELDS, read
from hush.planner.solve import exact_cost, forget

RESULTS = Path(__file__).resolve().parent.parent / "results"
# num_examples, expected_batch_size, epochs, noise_multiplier, delta, epsilon
PLANS = {
    name: dict(zip(FIELDS, values, strict=True))
    for name, values in {
        "digits": (1438, 256, 40, 2.0, 1e-5, 3),
        "mnist": (60_000, 600, 30, 1.1, 1e-5, 3),
        "large": (10**7, 4096, 5, 0.7, 1e-9, 8),
    }.items()
}
RANGES = {  # of the page's sliders
    "num_examples": (100, 1e8),
    "expected_batch_size": (1, 1e5),
    "epochs": (0.1, 1000),
    "noise_multiplier": (0.1, 100),
    "delta": (1e-12, 1e-2),
    "epsilon": (0.01, 100),
}
MOVES = 60  # of a slider, for a row
PASSES = 5  # over the requests of all rows
FLAGS = (
    *("--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--window-size=1280,1600"),
    *("--disable-background-networking", "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage"),
)
# From the slider's event to the frame in which the numbers stand: the change of the text, the next frame, its end.
MOVE = """
const [name, step, done] = arguments;
const slider = document.getElementById(`${name}-slider`), cost = document.getElementById("cost");
let start = 0;
const watcher = new MutationObserver(() => {
  watcher.disconnect();
  requestAnimationFrame(() => { const turn = new MessageChannel();
    turn.port1.onmessage = () => done(performance.now() - start); turn.port2.postMessage(0); });
});
watcher.observe(cost, { childList: true, characterData: true, subtree: true });
requestAnimationFrame(() => {
  start = performance.now();
  slider.value = Number(slider.value) + step;
  slider.dispatchEvent(new Event("input", { bubbles: true }));
});
"""
# The same way to the screen for a text that asks nobody: what the browser and the machine take by themselves.
FRAME = MOVE.replace("slider.dispatchEvent", "cost.textContent += ' '; if (0) slider.dispatchEvent")


def moves(plan: dict[str, Any], find: str) -> list[dict[str, Any]]:
    """The plan with one slider after the other dragged to the right, place by place as the page has them."""
    moved = [name for name in FIELDS if name not in (find, "epsilon", "num_examples", "expected_batch_size")]
    places = [10 ** (k / 60) for k in range(1, MOVES // len(moved) + 1)]
    return [{**plan, "find": find, field: float(f"{plan[field] * far:.3g}")} for field in moved for far in places]


def anywhere(find: str, count: int = 2 * MOVES) -> list[dict[str, Any]]:
    """Plans with every slider at a random place of its whole range, the batch within the data."""
    draw = np.random.default_rng(20261116)
    plans = []
    while len(plans) < count:
        ends = RANGES.values()
        values = [float(f"{10 ** draw.uniform(math.log10(low), math.log10(high)):.3g}") for low, high in ends]
        plan = dict(zip(FIELDS, values, strict=True)) | {"find": find}
        plan |= {name: round(plan[name]) for name in ("num_examples", "expected_batch_size")}
        if read(plan | {"find": "epsilon"})[0] is not None:
            plans.append(plan)
    return plans


async def request(app: Any, keys: Keys, question: str, body: dict[str, Any]) -> float:
    """Milliseconds of processor time."""
    text, sent = json.dumps(body).encode(), []
    names = {"host": keys.hosts[0], "origin": f"http://{keys.hosts[0]}", "content-type": "application/json"}
    path = f"/{keys.token}/api/{question}"
    scope = {"type": "http", "method": "POST", "path": path, "raw_path": path.encode(), "query_string": b"",
             "headers": [(name.encode(), value.encode()) for name, value in names.items()], "http_version": "1.1",
             "asgi": {"version": "3.0"}, "scheme": "http", "root_path": "", "client": None, "server": None}  # fmt: skip

    async def receive() -> MutableMapping[str, Any]:
        return {"type": "http.request", "body": text, "more_body": False}

    async def send(message: MutableMapping[str, Any]) -> None:
        sent.append(message)

    start = time.process_time()
    await app(scope, receive, send)
    spent = 1000 * (time.process_time() - start)
    assert sent[0]["status"] in (200, 422), sent  # 422: no value of the unknown meets the target
    return spent


def server_rows(root: Path) -> list[dict[str, Any]]:
    keys = Keys(port=1)
    app = server.application(server.Planner(root, (), keys))
    rows = []
    passes: dict[tuple[str, str], list[list[float]]] = {}
    for _ in range(PASSES):  # over all rows, so that one slow minute of the machine spoils no row
        for name, find in (*itertools.product(PLANS, FIELDS), *(("anywhere", find) for find in FIELDS)):
            bodies = moves(PLANS[name], find) if name in PLANS else anywhere(find)
            chosen, dragged = asyncio.run(_all(app, keys, bodies, dragged=name in PLANS))
            passes.setdefault((name, f"solve for {find}, just chosen"), []).append(chosen)
            if dragged:
                passes.setdefault((name, f"solve for {find}, while dragging"), []).append(dragged)
    for (name, asked), times in passes.items():
        rows.append({"plan": name, "request": asked, **summary(_best(times))})
    for name, plan in PLANS.items():
        for kind, work in server.SLOW.items():
            times = []
            for body in moves(plan, "epsilon")[: MOVES // 10]:
                asked, _ = read(body)
                assert asked is not None
                start = time.process_time()
                work(asked)
                times.append(1000 * (time.process_time() - start))
            rows.append({"plan": name, "request": f"{kind} (helper process)", **summary(times)})
    return rows


async def _all(
    app: Any, keys: Keys, bodies: list[dict[str, Any]], *, dragged: bool = True
) -> tuple[list[float], list[float]]:
    """Each question after the plan's own cost alone, and after the one before it. No cost asked for is known."""
    await request(app, keys, "numbers", bodies[0])
    chosen = [await _chosen(app, keys, body) for body in bodies]
    return chosen, [await _moved_to(app, keys, body) for body in (bodies if dragged else ())]


async def _chosen(app: Any, keys: Keys, body: dict[str, Any]) -> float:
    forget()
    await request(app, keys, "numbers", {**body, "find": "epsilon"})
    return await _moved_to(app, keys, body)


async def _moved_to(app: Any, keys: Keys, body: dict[str, Any]) -> float:
    exact_cost.cache_clear()
    return await request(app, keys, "numbers", body)


def _best(passes: list[list[float]]) -> list[float]:
    return [min(times) for times in zip(*passes, strict=True)]


def summary(times: list[float]) -> dict[str, float]:
    ranked = sorted(times)
    return {"median": statistics.median(ranked), "p90": ranked[int(0.9 * len(ranked))], "largest": ranked[-1]}


def browser_rows(root: Path) -> list[dict[str, Any]]:
    command = [sys.executable, "-m", "hush.cli.main", "plan", str(root / "runs"), "--no-open"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        address = process.stdout.readline().split()[1]
        driver = _browser(root / "profile")
        try:
            driver.get(address)
            time.sleep(5)
            names = [name for name in FIELDS if name != "epsilon"]  # a move of the target changes no cost
            _moved(driver, names[0], MOVE)  # to warm up
            rows = [{"slider": name, **summary(_moved(driver, name, MOVE))} for name in names]
            return [*rows, {"slider": "none: a text of the page itself", **summary(_moved(driver, names[0], FRAME))}]
        finally:
            driver.quit()
            process.terminate()


def _browser(profile: Path) -> Any:
    options = Options()
    options.binary_location = shutil.which("chromium") or ""
    for flag in (*FLAGS, f"--user-data-dir={profile}"):
        options.add_argument(flag)
    driver = webdriver.Chrome(options=options, service=Service(shutil.which("chromedriver")))
    driver.set_script_timeout(30)
    return driver


def _moved(driver: Any, name: str, script: str) -> list[float]:
    times = []
    for move in range(MOVES // 2):
        times.append(driver.execute_async_script(script, name, 3 if move % 20 < 10 else -3))
        time.sleep(0.03)
    return times


START = """# The planner

Milliseconds, on a shared machine with 2 cores; load average {load:.1f} before the run. FastAPI {fastapi}, uvicorn
{uvicorn}.

From a slider's event to the frame that shows the new numbers, in headless Chromium, while the slower answers follow.
The wait for the next frame, up to 17, is part of it.

| slider | median | 90 % | largest |
|---|---|---|---|
"""
SERVER = """
Processor time of one request for the numbers on the server: when "solve for" was just chosen, after the plan's own cost
was shown; and while a slider is dragged, after the question before. No cost is known already. Each request is asked in
{passes} passes over all rows, and its best time counts: what else the machine does can only add to it. "Anywhere" has
every slider at a random place of its whole range, targets out of reach included. What the helper process does comes
after the numbers.

| plan | request | median | 90 % | largest |
|---|---|---|---|---|
"""


def table(found: dict[str, Any]) -> str:
    text = START.format(load=found["load"], fastapi=version("fastapi"), uvicorn=version("uvicorn"))
    text += "".join(f"| {row['slider']} | {_times(row)} |\n" for row in found["browser"])
    text += SERVER.format(passes=found["passes"])
    return text + "".join(f"| {row['plan']} | {row['request']} | {_times(row)} |\n" for row in found["server"])


def _times(row: dict[str, Any]) -> str:
    return " | ".join(f"{row[name]:.3g}" for name in ("median", "p90", "largest"))


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        found: dict[str, Any] = {"load": os.getloadavg()[0], "moves": MOVES, "passes": PASSES}
        found["server"] = server_rows(Path(folder))
        found["browser"] = browser_rows(Path(folder))
    (RESULTS / "planner.json").write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
    (RESULTS / "planner.md").write_text(table(found), encoding="utf-8")
    print(table(found))


if __name__ == "__main__":
    main()
