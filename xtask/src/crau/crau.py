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

    def start(self, *words, **how):
        return subprocess.Popen([self.lsl, *words], env=self.env, **how)

    def run(self, *words):
        done = subprocess.run([self.lsl, *words], env=self.env, capture_output=True, timeout=PATIENCE)
        expect(done.returncode == 0, words, done.stderr.decode())
        return done.stdout

    def connect(self, name):
        """An encrypted connection of two programs."""
        outlet = self.start("gen", "--name", name, "--wait", "--duration", "1", stdout=subprocess.DEVNULL)
        try:
            self.run("recv", name, "--count", "10", "-o", "jsonl")
        finally:
            outlet.terminate()
            outlet.wait(PATIENCE)

    def query(self, *words):
        return json.loads(self.run("audit", "query", self.log, "--json", *words))
