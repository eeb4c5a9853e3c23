"""`lsl.exe` as people use it, against `lsl` of Linux: `cli.py FOLDER [PART]`, run by `cargo xtask wine cli`
where Wine is up. Programs and judges are those of `cargo xtask recorder`."""

import fcntl
import json
import os
import pty
import select
import signal
import subprocess
import sys
import termios
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "recorder"))

from judge import footer_is_right, is_piece_of, load  # noqa: E402
from lab import Lab, Program, Reader, Tools, expect, now, until  # noqa: E402

# How many recorders run, and are killed, at a time; and all of them.
AT_ONCE = 5
KILLS = int(os.environ.get("LSL_STAGE_KILLS", AT_ONCE))
# What an encrypted recording loses besides: a block of age, of samples that take at least so much.
BLOCK, SAMPLE_BYTES = 64 << 10, {"k-counter": 128, "k-string": 4}
# Streams whose recording may take no longer than this to end.
MANY, STOP_SECS = 64, 3.0
NAME = "Gerät µ"


class Stage(Lab):
    """Programs of both systems in one folder, in a session of their own."""

    def variables(self, device=""):
        """The environment of `lsl.exe`; `device` is the folder of its key."""
        env = dict(self.environment(), LSLAPICFG=drive(self.config))
        if device:
            env["LSL_SECURE_CONFIG"] = drive(self.folder / device / "lsl-secure.toml")
        return env

    def windows(self, *words, device=""):
        """Starts `lsl.exe`."""
        return self.spawn(["wine", EXE, *map(str, words)], self.variables(device))

    def on_windows(self, *words, device="", status=0, says=()):
        """Runs `lsl.exe` to its end, which has to be this; what it printed."""
        program = self.windows(*words, device=device)
        program.process.stdin.close()
        return program.ends(status, says).stdout()

    def sees(self, name):
        """Whether `lsl` of Linux finds a stream."""
        program = self.start("list", "--json")
        program.wait()
        return name in program.stdout()

    def on_console(self, *words):
        return Console(["wine", EXE, *map(str, words)], self.variables(), self.folder)


class Console:
    """A program on a terminal, and what is seen there."""

    def __init__(self, words, env, folder):
        self.master, slave = pty.openpty()
        termios.tcsetwinsize(slave, (24, 100))
        self.process = subprocess.Popen(
            words, env=env, cwd=folder, stdin=slave, stdout=slave, stderr=slave,
            start_new_session=True, preexec_fn=take_terminal,
        )
        os.close(slave)
        self.seen = ""

    def look(self, secs=0.05):
        while select.select([self.master], [], [], secs)[0]:
            try:
                self.seen += os.read(self.master, 65536).decode("utf-8", "replace")
            except OSError:
                return

    def shows(self, text, limit=20.0):
        deadline = now() + limit
        while text not in self.seen:
            expect(now() < deadline, f"no '{text}' on the terminal:", self.seen[-2000:])
            self.look()

    def types(self, keys):
        os.write(self.master, keys.encode())

    def ends(self, status=0, limit=20.0):
        deadline = now() + limit
        while self.process.poll() is None:
            if now() > deadline:
                self.process.kill()
                raise AssertionError(f"does not end: {self.seen[-2000:]}")
            self.look()
        self.look()
        os.close(self.master)
        found = self.process.returncode
        expect(found == status, f"status {found}, {status} expected:", self.seen[-2000:])


def take_terminal():
    """Makes standard input the terminal of this session, so that Ctrl-C reaches it."""
    fcntl.ioctl(0, termios.TIOCSCTTY, 0)


def drive(path):
    """A path as Windows sees it."""
    return "Z:" + str(path).replace("/", "\\")


def looks(lab):
    """Streams are seen from both sides, under their names."""
    gen = lab.windows("gen", "--name", NAME, "--rate", 100, "--channels", 2)
    until("stream", lambda: lab.sees(NAME))
    (found,) = json.loads(lab.on_windows("list", "--json"))
    expect(found["name"] == NAME, found)
    expect(NAME in lab.on_windows("list"), "no name in UTF-8")
    expect(json.loads(lab.on_windows("info", NAME, "--json"))["channel_count"] == 2, "info")
    said = json.loads(lab.on_windows("time", NAME, "--json"))
    expect(abs(said["offset_secs"]) < 0.05, said)
    expect(NAME in lab.run("info", NAME).stdout(), "info on Linux")
    gen.end()
    said = lab.on_windows("demo", "--duration", 1)
    expect("Nothing was lost" in said, said)


def stops(lab):
    """Ctrl-C at a console ends a recording whole."""
    lab.generate("s-counter", "--pattern", "counter", "--rate", 200, "--channels", 3)
    reader = Reader(lab, ["s-counter"])
    recorder = lab.on_console("record", "-o", "stop.xdf", "s-counter")
    # A picture takes the place of the one before.
    recorder.shows("s-counter")
    recorder.shows("\x1b[?7l")
    time.sleep(2.0)
    recorder.types("\x03")
    recorder.ends()
    expect("Recorded " in recorder.seen, recorder.seen)
    path = lab.folder / "stop.xdf"
    stream = load(path)["s-counter"]
    first, end = is_piece_of(stream, reader_now(reader)["s-counter"], "s-counter")
    expect(end - first > 200, f"{first}..{end}")
    footer_is_right(stream, "s-counter")
    expect(not list(lab.folder.glob("*.lslj")), "a journal is left")
    expect("s-counter" in lab.on_windows("xdf", "info", "stop.xdf"), "xdf info")
    lab.on_windows("xdf", "check", "stop.xdf")


def reader_now(reader):
    """What was surely sent, with what is on its way."""
    time.sleep(0.5)
    return reader.received()


def kills(lab):
    """Killed recorders leave files that can be repaired, and lose no more than a second and a half."""
    names = ["k-counter", "k-string"]
    lab.generate("k-counter", "--pattern", "counter", "--rate", 500, "--channels", 32)
    lab.generate("k-string", "--format", "string", "--rate", 50, "--channels", 2)
    reader = Reader(lab, names)
    recipient = lab.on_windows("key", "age", "key.txt").strip() if KILLS > AT_ONCE else ""
    for first in range(0, KILLS, AT_ONCE):
        is_encrypted = first // AT_ONCE % 2 == 1
        end = ".xdf.age" if is_encrypted else ".xdf"
        files = [f"kill-{number}{end}" for number in range(first, first + AT_ONCE)]
        kill(lab, reader, files, recipient if is_encrypted else None)


def kill(lab, reader, files, recipient):
    """Kills recorders of these files, and judges what they leave."""
    words = ["-r", recipient] if recipient else []
    recorders = [lab.windows("record", "-o", file, "--json", *words) for file in files]
    for recorder in recorders:
        until("samples", lambda: any(
            all(stream["samples"] for stream in line["streams"]) and len(line["streams"]) == 2
            for _, line in recorder.json_lines()
        ))
    ends = []
    # Before there is a whole block an encrypted file has no beginning.
    time.sleep(2.0 if recipient else 0.0)
    for number, recorder in enumerate(recorders):
        time.sleep(0.3 + 0.17 * number)
        ends.append(recorder.signal(signal.SIGKILL))
    for recorder in recorders:
        recorder.wait()
    sent = reader_now(reader)
    if recipient:
        locks = ["-i", "key.txt", "-r", recipient]
        for file in files:
            lab.on_windows("xdf", "repair", *locks, file, "-o", f"fixed-{file}")
            lab.on_windows("unlock", "-i", "key.txt", f"fixed-{file}")
    else:
        lab.on_windows("xdf", "repair", *files)
    for file, at in zip(files, ends):
        streams = load(lab.folder / (f"fixed-{file.removesuffix('.age')}" if recipient else file))
        lost = 0
        for name, size in SAMPLE_BYTES.items():
            first, end = is_piece_of(streams[name], sent[name], name)
            footer_is_right(streams[name], name)
            before = sum(stamp < at - 1.5 for stamp in sent[name][0])
            expect(0 <= first < end, f"{name}: {first}..{end} of {before}")
            lost += max(0, before - end) * size
        expect(lost <= (BLOCK if recipient else 0), f"{file}: {lost} bytes are lost")


def ends(lab):
    """A recording of 64 streams ends within 3 s of Ctrl-C."""
    lab.generate("many", "--streams", MANY, "--rate", 100, "--channels", 8)
    until("streams", lambda: len(lab.run("list", "--json").stdout().split('"name"')) > MANY)
    recorder = lab.on_console("record", "-o", "many.xdf")
    recorder.shows(f"{MANY} streams", limit=60.0)
    time.sleep(3.0)
    recorder.types("\x03")
    begun = now()
    recorder.ends()
    took = now() - begun
    expect(took <= STOP_SECS, f"{took:.1f} s")
    print(f"lsl.exe: {MANY} streams: {took:.1f} s from Ctrl-C to the end")
    expect(len(load(lab.folder / "many.xdf")) == MANY, "streams")


def names(lab):
    """Names that Windows keeps for devices are no files; others are Unicode."""
    lab.generate("n-counter", "--rate", 100, "--channels", 1)
    until("stream", lambda: lab.sees("n-counter"))
    record = ["record", "n-counter", "--duration", 0.5]
    lab.on_windows(*record, "-o", "COM1.xdf", status=2, says=["COM1"])
    lab.on_windows(*record, "-o", "a:b.xdf", status=2)
    lab.on_windows(*record, "-o", "Ümläut 脳.xdf")
    lab.on_windows(*record, "-o", "%b/%p/ü.xdf", "--task", "COM1", "--participant", "Jürgen?.")
    files = sorted(str(path.relative_to(lab.folder)) for path in lab.folder.rglob("*.xdf"))
    expect(files == ["_COM1/Jürgen--/ü.xdf", "Ümläut 脳.xdf"], files)
    lab.on_windows("xdf", "check", "Ümläut 脳.xdf")


def keys(lab):
    """Keys are made for their user alone, and refused if others may read them."""
    public = make_key(lab, "k")
    lab.on_windows("key", "init", "--dir", "k", status=1, says=["never overwritten"])
    for owner in ("Everyone", "Nobody"):
        words = ["key", "init", "--system", "--owner", owner, "--name", "x"]
        lab.on_windows(*words, status=2, says=["no such user"])
    lab.on_windows("trust", "add", "Gerät", public, "--dir", "k", status=2)
    other = make_key(lab, "o")
    lab.on_windows("trust", "add", "Gerät", other, "--dir", "k")
    expect("Gerät" in lab.on_windows("trust", "list", "--dir", "k"), "trust list")
    (entry,) = json.loads(lab.on_windows("trust", "list", "--dir", "k", "--json"))
    expect(other in entry.values() and entry["name"] == "Gerät", entry)
    lab.on_windows("security", "status", device="k")
    key = lab.folder / "k" / "device_key.pem"
    key.chmod(0o644)
    said = lab.on_windows("security", "status", device="k", status=1)
    expect("by which Everyone (S-1-1-0) may read it" in said and "icacls" in said, said)
    lab.on_windows("gen", device="k", status=1, says=["Everyone (S-1-1-0) may read it"])
    # What is typed at a console is hidden, and edited.
    console = lab.on_console("key", "init", "--dir", "p", "--passphrase", "--name", "p")
    console.shows("New passphrase")
    time.sleep(0.3)
    console.types("geheim\x7fm €\r")
    console.shows("The same again")
    time.sleep(0.3)
    console.types("falsch\x15geheim €\r")
    console.ends()
    expect("geheim" not in console.seen, console.seen)
    program = lab.windows("key", "show", "--dir", "p")
    program.process.stdin.write("geheim €\n")
    program.process.stdin.close()
    expect("lsl-ed25519:" in program.ends().stdout(), program)
    console = lab.on_console("key", "passwd", "--dir", "p")
    console.shows("assphrase")
    time.sleep(0.3)
    # Ctrl-D: of Ctrl-C Wine makes the end of the program, whatever the mode of the console.
    console.types("\x04")
    console.ends(status=1)
    expect("no passphrase given" in console.seen, console.seen)


def make_key(lab, device):
    """Makes a device; its public key."""
    said = lab.on_windows("key", "init", "--dir", device, "--name", device)
    expect(list((lab.folder / device).iterdir()), "no files")
    return key_in(said)


def key_in(said):
    return next(word for word in said.split() if word.startswith("lsl-ed25519:"))


def sessions(lab):
    """Encrypted streams of `lsl.exe` and of `lsl` reach each other."""
    theirs = make_key(lab, "w")
    home = lab.folder / "linux"
    ours = key_in(lab.run("key", "init", "--name", "linux", machine="linux").stdout())
    lab.run("trust", "add", "windows", theirs, machine="linux")
    lab.on_windows("trust", "add", "linux", ours, "--dir", "w")
    expect(home.is_dir(), "no home")
    words = ["--pattern", "counter", "--rate", 200, "--channels", 2]
    there = lab.windows("gen", "--name", "from-windows", *words, device="w")
    here = lab.start("gen", "--name", "from-linux", *words, machine="linux")
    recv = ["-n", 200, "-o", "jsonl"]
    said = lab.run("recv", "from-windows", *recv, machine="linux")
    numbered(said.stdout())
    expect("Encrypted" in said.stderr(), said)
    said = lab.windows("recv", "from-linux", *recv, device="w").ends()
    numbered(said.stdout())
    expect("Encrypted" in said.stderr(), said)
    said = lab.on_windows("trust", "check", "--json", device="w")
    expect("from-linux" in said, said)
    # Who is not trusted gets nothing.
    make_key(lab, "x")
    lab.on_windows("recv", "from-linux", *recv, device="x", status=1)
    for program in (there, here):
        expect(program.is_running(), program)


def numbered(lines):
    numbers = [json.loads(line)["v"][0] for line in lines.splitlines()]
    expect(len(numbers) == 200, len(numbers))
    expect(numbers == [numbers[0] + n for n in range(200)], numbers)


# Those of the first group wait for programs to start more than they compute, and none of them for a clock.
PARTS = [[looks, names, keys, sessions], [stops], [kills]]
if KILLS > AT_ONCE:
    PARTS.append([ends])
EXE = os.environ["LSL_STAGE_EXE"]


def play(part):
    begun = now()
    with Stage(Tools(), sys.argv[1], part.__name__) as lab:
        part(lab)
    print(f"lsl.exe: {part.__doc__} {now() - begun:.1f} s", flush=True)


if __name__ == "__main__":
    # Wine's own programs start with the first one of ours and end seconds after the last, and until then they hold
    # its pipes open.
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    subprocess.Popen(["wine", "cmd"], stdin=subprocess.PIPE, **quiet)
    time.sleep(1.0)
    if not any(sys.argv[2:3] in ([], [part.__name__]) for group in PARTS for part in group):
        sys.exit(f"no part is called {sys.argv[2]}")
    for group in PARTS:
        wanted = [part for part in group if sys.argv[2:3] in ([], [part.__name__])]
        with ThreadPoolExecutor() as pool:
            list(pool.map(play, wanted))
