"""crypto-auditing's own programs read what `lsl audit export` writes. Spec: audit §7 test 4.

crau.py LSL QUERY BROKER CLIENT FOLDER: programs, and an empty folder. They are called, never read.
"""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

PATIENCE = 60.0


def expect(holds, *said):
    if not holds:
        raise AssertionError(" ".join(str(part) for part in said))


def until(what, holds):
    deadline = time.monotonic() + PATIENCE
    while not holds():
        expect(time.monotonic() < deadline, f"no {what} within {PATIENCE} s")
        time.sleep(0.05)


class Lab:
    """A machine that encrypts, with a log."""

    def __init__(self, lsl, folder):
        self.lsl, self.folder = lsl, Path(folder)
        self.env = dict(os.environ, HOME=str(self.folder), LSLAPICFG=str(self.folder / "lsl_api.cfg"))
        for name in ("LSL_SECURE_CONFIG", "SUDO_USER", "XDG_CONFIG_HOME"):
            self.env.pop(name, None)
        (self.folder / "lsl_api.cfg").write_text("[lab]\nSessionID = crau\n")
        self.run("key", "init", "--name", "amp1")
        config = self.folder / "lsl_api/lsl-secure.toml"
        lines = config.read_text().splitlines()
        lines = [line for line in lines if not line.startswith("audit_file")]
        at = lines.index("[security]") + 1
        config.write_text("\n".join([*lines[:at], 'audit_file = "audit.jsonl"', *lines[at:]]) + "\n")
        self.log = str(self.folder / "lsl_api/audit.jsonl")

    def start(self, *words):
        quiet = subprocess.DEVNULL
        return subprocess.Popen([self.lsl, *words], env=self.env, stdout=quiet, stderr=quiet)

    def run(self, *words):
        done = subprocess.run([self.lsl, *words], env=self.env, capture_output=True, timeout=PATIENCE)
        expect(done.returncode == 0, words, done.stderr.decode())
        return done.stdout

    def connect(self, name):
        """An encrypted connection of two programs."""
        outlet = self.start("gen", "--name", name, "--wait", "--duration", "1")
        try:
            self.run("recv", name, "--count", "10", "-o", "jsonl")
        finally:
            outlet.terminate()
            outlet.wait(PATIENCE)

    def query(self, *words):
        return json.loads(self.run("audit", "query", self.log, "--json", *words))


def spans(trees, parent=None):
    """Each context: what it lies in, its times in seconds, and what is said of it."""
    for tree in trees:
        # Theirs are seconds, ours nanoseconds.
        times = [tree[key] / 1e9 if isinstance(tree[key], int) else tree[key] for key in ("start", "end")]
        events = {
            key: bytes(value).hex() if isinstance(value, list) else value for key, value in tree["events"].items()
        }
        yield tree["context"], (parent, times, events)
        yield from spans(tree.get("spans", []), tree["context"])


def compare(ours, theirs):
    """Fails unless both are the same contexts with the same times. Returns their number."""
    ours, theirs = dict(spans(ours)), dict(spans(theirs))
    expect(ours.keys() == theirs.keys(), len(ours), "contexts, and theirs are", len(theirs))
    for context, (parent, (start, end), events) in ours.items():
        parent_there, (start_there, end_there), events_there = theirs[context]
        expect((parent, events) == (parent_there, events_there), events, events_there)
        # A connection is told of when it begins, and goes on.
        if events["name"] == "lsl::session":
            end = max(start, min(end, end_there))
        # Their numbers have no more digits.
        close = max(abs(start - start_there), abs(end - end_there)) < 1e-6
        expect(close, context, start, start_there, end, end_there)
    return len(ours)


def stored(lab, query):
    """A file, read as a whole and from a time on."""
    lab.connect("one")
    time.sleep(1.5)
    middle = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime())
    lab.connect("two")
    out = str(lab.folder / "audit.cbor")
    lab.run("audit", "export", lab.log, "-o", out)

    def ask(*words):
        asked = [query, "--log-file", out, *words]
        env = dict(lab.env, TZ="UTC")
        return json.loads(subprocess.run(asked, env=env, capture_output=True, check=True, timeout=PATIENCE).stdout)

    whole = compare(lab.query(), ask())
    since = compare(lab.query("--since", middle.replace(" ", "T") + "Z"), ask("--since", middle))
    until = compare(lab.query("--until", middle.replace(" ", "T") + "Z"), ask("--until", middle))
    # Two ends of a connection each: session, handshake and eight parts, close; and what begins a log.
    expect(0 < since < whole and 0 < until < whole and since + until == whole, whole, since, until)
    return f"{whole} contexts, {until} before and {since} after"


def groups(path):
    """What a client has written so far: one object after the other, the last one perhaps in part."""
    text, at, found = path.read_text() if path.exists() else "", 0, []
    try:
        while at < len(text.rstrip()):
            group, at = json.JSONDecoder().raw_decode(text, at)
            found.append(group)
            at += len(text[at:]) - len(text[at:].lstrip())
    except json.JSONDecodeError:
        pass
    return found


def followed(lab, query, broker, client):
    """A file that grows: a client of the broker gets each group once."""
    out, socket, got = lab.folder / "follow.cbor", lab.folder / "socket", lab.folder / "client.json"
    before = len(dict(spans(lab.query())))
    running = [lab.start("audit", "export", lab.log, "--follow", "-o", str(out))]
    try:
        until("export", lambda: out.exists() and out.stat().st_size > 0)
        running.append(subprocess.Popen([broker, "--log-file", out, "--socket-path", socket], env=lab.env))
        until("broker", socket.exists)
        words = ["--socket-path", socket, "--scope", "lsl", "--format", "json", "--output", got]
        running.append(subprocess.Popen([client, *words], env=lab.env))
        until("client", got.exists)
        lab.connect("three")
        ours = lab.query()
        expected = dict(spans(ours))
        expect(len(expected) > before, "nothing was recorded")
        # The first tells when the machine was started.
        until("group", lambda: len(groups(got)) > len(expected))
    finally:
        for program in reversed(running):
            program.terminate()
            program.wait(PATIENCE)
    _, *delivered = groups(got)
    contexts = [bytes(group["context"]).hex() for group in delivered]
    expect(sorted(contexts) == sorted(expected), len(contexts), "groups of", len(expected))
    for context, group in zip(contexts, delivered):
        data = [event["Data"] for event in group["events"] if "Data" in event]
        told = {
            it["key"]: bytes(it["value"]).hex() if isinstance(it["value"], list) else it["value"] for it in data
        }
        # All that is of the scope.
        said = {key: value for key, value in expected[context][2].items() if not key.startswith("pk::")}
        expect(told == said, told, said)
    live = subprocess.run([query, "--log-file", out], env=lab.env, capture_output=True, check=True, timeout=PATIENCE)
    compare(ours, json.loads(live.stdout))
    return f"{len(delivered)} groups, {len(expected) - before} of them as they came"


if __name__ == "__main__":
    LSL, QUERY, BROKER, CLIENT, FOLDER = sys.argv[1:]
    LAB = Lab(LSL, FOLDER)
    print("crau-query:", stored(LAB, QUERY), flush=True)
    print("crau-event-broker, crau-client:", followed(LAB, QUERY, BROKER, CLIENT), flush=True)
