"""Programs of a part: `lsl`, outlets and a reader with pylsl. Each part has its own folder and session."""

import json
import os
import signal
import subprocess
import sys
import threading
import time
import traceback
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

HERE = Path(__file__).resolve().parent

# The one clock of this machine: what LSL calls local_clock.
now = time.monotonic

PATIENCE = 60.0


def expect(holds, *said):
    """An assertion that -O does not remove."""
    if not holds:
        raise AssertionError(" ".join(str(part) for part in said))


def until(what, holds, limit=PATIENCE, step=0.02):
    deadline = now() + limit
    while not holds():
        expect(now() < deadline, f"no {what} within {limit} s")
        time.sleep(step)


def play(scenes, stage, folder, part="", at_once=1):
    """Plays the scenes with this part in their names, each on a stage of its own, and ends the program."""
    tools = Tools()
    chosen = [name for name in scenes if part in name]
    expect(chosen, f"no scene is called {part}")

    def play_one(name):
        began = now()
        try:
            with stage(tools, folder, name) as its:
                log = its.folder.with_suffix(".log")
                try:
                    numbers = scenes[name](its)
                finally:
                    log.write_text("".join(f"{program}\n\n" for program in its.running))
        except Exception:
            print(f"{name} ... FAILED after {now() - began:.1f} s\n{traceback.format_exc()}", flush=True)
            print(f"What programs said: {Path(folder) / name}.log", flush=True)
            return False
        numbers = f"{numbers}; " if numbers else ""
        print(f"{name} ... ok ({numbers}{now() - began:.1f} s)", flush=True)
        return True

    with ThreadPoolExecutor(at_once) as pool:
        passed = list(pool.map(play_one, chosen))
    print(f"{sum(passed)} passed, {len(passed) - sum(passed)} failed")
    sys.exit(not all(passed))


class Tools:
    """Where things are, as xtask found them."""

    def __init__(self):
        self.lsl = os.environ["LSL_STAGE_COMMAND"]
        self.pylsl = os.environ["LSL_STAGE_PYLSL"]
        # Of the recorder alone.
        self.library = os.environ.get("LSL_STAGE_LIBRARY")
        self.pyarrow = os.environ.get("LSL_STAGE_PYARROW")


class Lab:
    """A folder in which programs of one LSL session run."""

    def __init__(self, tools, folder, name):
        self.tools = tools
        self.folder = Path(folder) / name
        self.folder.mkdir(parents=True)
        self.config = self.folder / "lsl_api.cfg"
        self.config.write_text(f"[lab]\nSessionID = {name}\n")
        self.running = []

    def path(self, name):
        return str(self.folder / name)

    def environment(self, machine=""):
        home = self.folder / machine
        home.mkdir(exist_ok=True)
        env = dict(os.environ, HOME=str(home), LSLAPICFG=str(self.config))
        for name in ("LSL_SECURE_CONFIG", "SUDO_USER", "PYLSL_LIB", "XDG_CONFIG_HOME"):
            env.pop(name, None)
        return env

    def start(self, *words, machine="", prefix=()):
        """Starts `lsl`."""
        words = [*prefix, self.tools.lsl, *map(str, words)]
        return self.spawn(words, self.environment(machine))

    def run(self, *words, status=0, machine="", says=()):
        """Runs `lsl` to its end, which has to be this."""
        return self.start(*words, machine=machine).ends(status, says)

    def python(self, script, *words, machine="", ours=False):
        """Starts a script with pylsl: on our library, or on the real liblsl of its wheel."""
        env = self.environment(machine)
        env["LSL_STAGE_EXPECT"] = "lsl-rs" if ours else "1.18"
        if ours:
            env["PYLSL_LIB"] = self.tools.library
        return self.spawn([self.tools.pylsl, str(HERE / script), *words], env)

    def spawn(self, words, env):
        program = Program(words, env, self.folder)
        self.running.append(program)
        return program

    def generate(self, name, *words):
        """A stream of numbered samples that waits for its first receiver."""
        return self.start("gen", "--name", name, "--wait", *words)

    def __enter__(self):
        return self

    def __exit__(self, *_):
        for program in self.running:
            program.end()


class Program:
    """A process whose lines are kept, with the time at which they came."""

    def __init__(self, words, env, folder):
        self.words = words
        self.lines = []
        self.errors = []
        self.process = subprocess.Popen(
            words,
            env=env,
            cwd=folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self.threads = [
            threading.Thread(target=self.keep, args=pair, daemon=True)
            for pair in ((self.process.stdout, self.lines), (self.process.stderr, self.errors))
        ]
        for thread in self.threads:
            thread.start()

    @staticmethod
    def keep(pipe, lines):
        for line in pipe:
            lines.append((now(), line))

    def signal(self, number):
        """Sends a signal; the time just before."""
        at = now()
        self.process.send_signal(number)
        return at

    def wait(self, limit=PATIENCE):
        try:
            self.process.wait(limit)
        except subprocess.TimeoutExpired:
            self.end()
            raise AssertionError(f"still running after {limit} s: {self}") from None
        for thread in self.threads:
            thread.join()
        return self.process.returncode

    def ends(self, status=0, says=(), limit=PATIENCE):
        """Waits for an end with this status and these words on stderr."""
        found = self.wait(limit)
        expect(found == status, f"status {found}, {status} expected:", self)
        said = " ".join(self.stderr().split())
        for part in says:
            expect(part in said, f"no '{part}' said by", self)
        return self

    def is_running(self):
        return self.process.poll() is None

    def end(self):
        """Whatever it does."""
        if self.is_running():
            self.process.send_signal(signal.SIGKILL)
        self.wait()
        for pipe in (self.process.stdin, self.process.stdout, self.process.stderr):
            try:
                pipe.close()
            except BrokenPipeError:
                pass

    def stdout(self):
        return "".join(line for _, line in self.lines)

    def stderr(self):
        return "".join(line for _, line in self.errors)

    def json_lines(self):
        """Objects of whole lines, with the time at which they came."""
        return [(at, json.loads(line)) for at, line in self.lines if line.endswith("}\n")]

    def __str__(self):
        return f"{' '.join(self.words)}\n{self.stdout()[-2000:]}{self.stderr()[-4000:]}"


class Reader:
    """Receives streams with real liblsl and remembers what came, and when: so much was surely sent."""

    def __init__(self, lab, names, *options):
        self.names = names
        self.program = lab.python("reader.py", *options, *names)
        until("reader", lambda: self.program.lines or not self.program.is_running())
        expect(self.program.is_running(), self.program)

    def received(self):
        """By name: stamps, values, and when they had come."""
        found = {name: ([], [], []) for name in self.names}
        for at, line in list(self.program.lines)[1:]:
            if not line.endswith("\n"):
                continue
            piece = json.loads(line)
            stamps, values, times = found[piece["name"]]
            stamps += piece["stamps"]
            values += piece["values"]
            times += [at] * len(piece["stamps"])
        return found
