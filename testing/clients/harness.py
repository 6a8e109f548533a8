"""Calls a client as its users do and prints one JSON line per capability or scenario.

    python CLIENT.py VARIANT capabilities URL             {"client", "version", "capability", "ok", "detail"}
    python CLIENT.py VARIANT retries ENDS KILLS RESTARTS  {"scenario", "outcome", "text"}

A client is a function from a server's address to an object with its capabilities as methods, and with `ask` and `read`
for the scenarios.
"""

import asyncio
import json
import os
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from importlib.metadata import version
from types import SimpleNamespace

MODEL = "assistant"
KEY = "any"
PIXEL = "iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAYAAAAfFcSJAAAADUlEQVR42mNk+M9QDwADhgGAWjR9awAAAABJRU5ErkJggg=="

# What the server's script answers.
ANSWERS = SimpleNamespace(
    plain="A plain answer.",
    streaming="one two three four five\nsix seven eight",
    tools="It is mild in Oslo.",
    parallel_tools="mild in Oslo; mild in Rome",
    structured={"title": "broken lamp", "urgent": True},
    image="I see it.",
    options="Options are set.",
)

CAPABILITIES = [
    "plain", "streaming", "tools", "parallel_tools", "structured", "multi_turn", "image", "options", "forced_tool",
    "abort", "error",
]


def weather_in(city):
    return f"mild in {city}"


def same(found, expected):
    if found != expected:
        raise AssertionError(f"expected {expected!r}, found {found!r}")


def joined(pieces):
    """Checks that a stream has several pieces, and returns them as one text."""
    texts = [piece for piece in pieces if piece]
    if len(texts) < 2:
        raise AssertionError(f"expected several pieces, found {texts!r}")
    return "".join(texts)


def fails(call):
    """Fails unless the call fails soon, with our code and with the provider's words."""
    began = time.monotonic()
    try:
        answer = call()
    except Exception as error:
        text = described(error)
    else:
        raise AssertionError(f"expected an error, found {answer!r}")
    for words in ("model.unauthorized", "the key is of no use"):
        if words not in text:
            raise AssertionError(f"expected {words} in the error, found {text}")
    if time.monotonic() - began > 20:
        raise AssertionError(f"the error came after {time.monotonic() - began:.0f} s")


LOOP = asyncio.new_event_loop()
threading.Thread(target=LOOP.run_forever, daemon=True).start()


def finish(coroutine):
    """Runs a coroutine on the one event loop of the program: clients share connections, which belong to a loop."""
    return asyncio.run_coroutine_threadsafe(coroutine, LOOP).result()


class Stopped(Exception):
    """Leaves a stream after its first text."""


def aborts(client):
    """Stops reading after the first text, and checks that the client stops soon and works afterwards."""
    began = time.monotonic()

    def stop(text):
        raise Stopped(text)

    try:
        client.read("case abort", stop)
    except Stopped:
        pass
    else:
        raise AssertionError("expected a text before the end")
    if time.monotonic() - began > 40:
        raise AssertionError(f"stopped only after {time.monotonic() - began:.0f} s")
    same(client.ask("case plain"), ANSWERS.plain)


def described(error):
    return f"{type(error).__name__}: {error} {getattr(error, 'body', '') or ''}"[:600]


def run(package, variants):
    variant, mode, *urls = sys.argv[1:]
    if mode == "capabilities":
        client = variants[variant](urls[0])
        capabilities = [name for name in CAPABILITIES if hasattr(client, name)]
        with ThreadPoolExecutor(len(capabilities)) as pool:
            list(pool.map(lambda name: check(package, variant, client, name), capabilities))
    else:
        # Clients are made one by one: some set up state that is shared.
        ends, kills, restarts = (variants[variant](url) for url in urls)
        reading = threading.Event()
        with ThreadPoolExecutor(5) as pool:
            pool.submit(report, "model_error", lambda text: ends.ask(text))
            pool.submit(report, "cancel", lambda text: ends.ask(text))
            pool.submit(report, "kill_mid_stream", lambda text: kills.read(text, lambda _: note_reading(reading)))
            pool.submit(report, "kill_before_answer", lambda text: kills.ask(text))
            pool.submit(report, "restart", lambda text: restarts.ask(text))
    sys.stdout.flush()
    os._exit(0)


def check(package, variant, client, capability):
    detail = ""
    try:
        getattr(client, capability)()
    except Exception as error:
        detail = described(error) or traceback.format_exc()
    output(client=variant, version=version(package), capability=capability, ok=not detail, detail=detail)


def report(scenario, call):
    try:
        output(scenario=scenario, outcome="answer", text=call(f"case charge {scenario}"))
    except Exception as error:
        output(scenario=scenario, outcome="error", text=described(error))


def note_reading(reading):
    if not reading.is_set():
        reading.set()
        output(scenario="kill_mid_stream", outcome="reading", text="")


def output(**line):
    # One write per line, because several threads print.
    sys.stdout.write(json.dumps(line) + "\n")
    sys.stdout.flush()
