"""Proofs that `lsl record` and what belongs to it keep data: `recorder.py FOLDER FILES [PART]`, run by
`cargo xtask recorder` in a private network. FILES is a folder with recordings of other programs."""

import json
import os
import signal
import subprocess
import sys
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import numpy as np
import pyxdf

import survive
from judge import (
    difference,
    footer_is_right,
    form,
    is_piece_of,
    load,
    samples,
    table,
    tables_are_equal,
)
from lab import Lab, Reader, Tools, expect, now, until

FORMATS = ["float32", "double64", "int32", "int16", "int8", "int64", "string"]
PUSHED = 300

# `lsl` and pyxdf fit clock offsets in different ways.
CORRECTED_WITHIN = 1e-3


def formats(tools, folder):
    """Everything that `lsl gen` sends, as real liblsl receives it."""
    with Lab(tools, folder, "formats") as lab:
        for number, name in enumerate(FORMATS):
            words = ["--format", name, "--channels", 1 + number % 3, "--rate", 200 + 50 * number]
            words += ["--chunk", 7] if number % 2 else []
            words += ["--markers"] if name == "string" else []
            lab.generate(f"f-{name}", *words)
        names = ["f-string-Markers", *(f"f-{name}" for name in FORMATS)]
        reader = Reader(lab, names)
        path = lab.folder / "formats.xdf"
        recorder = lab.start("record", "-o", path, "--json")
        # At the start, and after five seconds.
        until("second clock offset", lambda: fewest_offsets(recorder) >= 2)
        stopped = recorder.signal(signal.SIGINT)
        recorder.ends(0, ["Recorded "])
        time.sleep(1.0)
        sent = reader.received()
        lab.run("xdf", "check", path)
        streams = load(path)
        expect(streams.keys() == sent.keys(), streams.keys())
        count = 0
        for name, stream in streams.items():
            first, end = is_piece_of(stream, sent[name], name)
            early = sum(stamp <= stopped for stamp in sent[name][0]) - end
            expect(early <= 0 and end > first, f"{name} ends {early} early")
            footer_is_right(stream, name)
            expect(len(stream["clock_times"]) >= 2, f"{name}: {stream['clock_times']}")
            expect(np.abs(stream["clock_values"]).max() < 0.01, "one clock", stream["clock_values"])
            count += end - first
        print(f"  {len(streams)} streams of all formats, {count} samples")
        return path


def fewest_offsets(recorder):
    """Of a stream, as a recorder says."""
    said = [line["streams"] for _, line in recorder.json_lines()[-1:]]
    return min((stream["offsets"] for stream in said[0]), default=0) if said else 0


def outlets(tools, folder):
    """pylsl's outlets: on real liblsl, and encrypted on ours; and what policy forbids."""
    with Lab(tools, folder, "outlets") as lab:
        for name in ("amp1", "rec1"):
            lab.run("key", "init", "--name", name, machine=name)
        for here, there, role in (("amp1", "rec1", "inlet"), ("rec1", "amp1", "outlet")):
            key = lab.run("key", "show", "--public", machine=there).stdout().strip()
            lab.run("trust", "add", there, key, "--role", role, machine=here)
        plain = record_pylsl(lab, "plain.xdf", machine="guest")
        # In plaintext, where the recorder's policy asks for encryption; the outlets still are there.
        refused(lab, "rec1")
        end_outlets(lab)
        record_pylsl(lab, "secure.xdf", sender="amp1", machine="rec1", encrypted_with="amp1")
        # Encrypted, and the recorder has no key.
        refused(lab, "guest")
        end_outlets(lab)
        return plain


def record_pylsl(lab, file, machine, sender="", encrypted_with=None):
    """Records what pylsl sends, which has to be what it says; its outlets stay."""
    outlet = lab.python("outlet.py", str(PUSHED), machine=sender, ours=bool(sender))
    names = [f"pylsl-{name}" for name in FORMATS]
    path = lab.folder / file
    required = [word for name in names for word in ("--require", name)]
    words = ["record", *required, "-o", path, "--json", "--timeout", "20"]
    recorder = lab.start(*words, machine=machine)
    until("samples pushed", lambda: outlet.lines or not outlet.is_running())
    expect(outlet.is_running() and recorder.is_running(), outlet, recorder)
    until("all pushed", lambda: outlet.lines[-1][1].endswith("\n"))
    recorder.signal(signal.SIGINT)
    recorder.ends(0, ["Recorded "])
    pushed = json.loads(outlet.stdout())
    for stream in recorder.json_lines()[-1][1]["streams"]:
        expect(stream["encrypted_with"] == encrypted_with, stream)
    lab.run("xdf", "check", path)
    streams = load(path)
    expect(streams.keys() == pushed.keys(), streams.keys())
    for name, stream in streams.items():
        sent = pushed[name]["stamps"], pushed[name]["values"]
        expect(is_piece_of(stream, sent, name) == (0, PUSHED), f"{name} is not whole")
        footer_is_right(stream, name)
        (desc,) = stream["info"]["desc"]
        expect(desc["manufacturer"] == ["Ä <&>"], name, desc)
    how = f"encrypted by {encrypted_with} on ours" if encrypted_with else "on liblsl 1.18.0"
    print(f"  pylsl {how}: {len(streams)} formats, {len(streams) * PUSHED} samples")
    return path


def refused(lab, machine):
    """Recording is refused, in words, and leaves no file."""
    path = lab.folder / f"refused-{machine}.xdf"
    words = ["record", "--require", "pylsl-int8", "-o", path, "--timeout", "3"]
    said = lab.start(*words, machine=machine).ends(5, ["encryption does not allow", "pylsl-int8"])
    expect(not path.exists(), f"{path} is there")
    print(f"  refused: {' '.join(said.stderr().split())[:150]}")


def end_outlets(lab):
    for program in lab.running:
        if program.words[-1] == str(PUSHED) and program.is_running():
            program.process.stdin.close()
            program.ends(0)


def record_again(tools, folder, path):
    """What `lsl play` plays is recorded again, in a session of its own."""
    with Lab(tools, folder, f"play-{path.stem}") as lab:
        again = lab.folder / "again.xdf"
        player = lab.start("play", "--wait", path)
        recorder = lab.start("record", "-o", again)
        player.ends(0, ["Played "])
        recorder.signal(signal.SIGINT)
        recorder.wait()
        lab.run("xdf", "check", again)
        return again


def replay(tools, folder, paths):
    """What is recorded of a recording is equal to it."""
    with ThreadPoolExecutor() as pool:
        again = list(pool.map(lambda path: record_again(tools, folder, path), paths))
    for path, twin in zip(paths, again):
        before, after = load(path), load(twin)
        expect(before.keys() == after.keys(), after.keys())
        aligned, _ = pyxdf.load_xdf(str(path), dejitter_timestamps=False)
        aligned = {stream["info"]["name"][0]: stream["time_stamps"] for stream in aligned}
        shifts, count = [], 0
        for name, stream in before.items():
            told = difference(samples(stream)[1], samples(after[name])[1], f"{name}: values")
            expect(told is None, told)
            footer_is_right(after[name], name)
            shifts += list(after[name]["time_stamps"] - aligned[name])
            count += len(stream["time_stamps"])
        # One time line for all.
        apart = max(shifts) - min(shifts)
        expect(apart < CORRECTED_WITHIN, f"{apart} s apart")
        print(f"  {path.name}: {count} samples again, stamps within {apart:.1e} s")


def convert(tools, folder, paths):
    """Tables equal what pyxdf reads."""
    with Lab(tools, folder, "convert") as lab:
        for path in paths:
            tables = lab.folder / path.stem
            lab.run("xdf", "convert", path, "-o", tables)
            count = tables_are_equal(path, tables, table, CORRECTED_WITHIN)
            print(f"  CSV of {path.name}: {count} values")
            tables = lab.folder / f"{path.stem}-parquet"
            lab.run("xdf", "convert", "--to", "parquet", path, "-o", tables)
            count = tables_are_equal(path, tables, parquet(tools), CORRECTED_WITHIN)
            print(f"  Parquet of {path.name}: {count} values")


def parquet(tools):
    def read(path, _):
        script = str(Path(__file__).with_name("parquet_rows.py"))
        told = subprocess.run([tools.pyarrow, script, path], check=True, capture_output=True)
        found = json.loads(told.stdout)
        expect(found["names"][:2] == ["timestamp", "timestamp_corrected"], path, found["names"])
        rows = found["rows"]
        return [row[0] for row in rows], [row[1] for row in rows], [row[2:] for row in rows]

    return read


def real(tools, folder, files):
    """Recordings of other programs."""
    paths = sorted(files.glob("*.xdf"))
    expect(paths, f"no recordings in {files}")
    with Lab(tools, folder, "real") as lab:
        for path in paths:
            checked = json.loads(lab.run("xdf", "check", "--json", path).stdout())
            told = json.loads(lab.run("xdf", "info", "--json", path).stdout())
            expect(checked["whole"] and told["problems"] == 0, checked, told)
            streams = load(path)
            expect(len(told["streams"]) == len(streams), told)
            for found in told["streams"]:
                stream = streams[found["name"]]
                stamps = stream["time_stamps"]
                expected = {
                    "id": stream["info"]["stream_id"],
                    "type": (stream["info"]["type"] or [""])[0] or "",
                    "channel_format": form(stream),
                    "channel_count": int(stream["info"]["channel_count"][0]),
                    "nominal_srate": float(stream["info"]["nominal_srate"][0]),
                    "samples": len(stamps),
                    # The earliest and the latest: clocks may have begun anew.
                    "first_timestamp": stamps.min() if len(stamps) else None,
                    "last_timestamp": stamps.max() if len(stamps) else None,
                    "clock_offsets": len(stream["clock_times"]),
                    "has_footer": True,
                }
                found = {name: found[name] for name in expected}
                why = difference(expected, found, f"{path.name}: {stream['info']['name'][0]}")
                expect(why is None, why)
            tables = lab.folder / path.stem
            lab.run("xdf", "convert", path, "-o", tables)
            count = tables_are_equal(path, tables, table, CORRECTED_WITHIN)
            print(f"  {path.name}: {len(streams)} streams, {count} values, {checked['remarks']}")


def main():
    folder, files = Path(sys.argv[1]), Path(sys.argv[2]).resolve()
    wanted = sys.argv[3] if len(sys.argv) > 3 else ""
    tools = Tools()
    seed = os.environ.get("LSL_STAGE_SEED") or str(time.time_ns())
    made = []
    parts = {
        "formats": lambda: made.append(formats(tools, folder)),
        "outlets": lambda: made.append(outlets(tools, folder)),
        "play": lambda: replay(tools, folder, made),
        "convert": lambda: convert(tools, folder, made),
        "real": lambda: real(tools, folder, files),
        "survive": lambda: survive.run(tools, folder, seed),
    }
    # These need what the first ones record.
    needed = {"play": ("formats", "outlets"), "convert": ("formats", "outlets")}
    names = [
        name
        for name in parts
        if wanted in name or any(name in needed.get(other, ()) and wanted in other for other in parts)
    ]
    expect(names, f"no part '{wanted}' among {', '.join(parts)}")
    print(f"recorder: pyxdf {pyxdf.__version__}, seed {seed}")
    times = []
    for name in names:
        print(f"{name}:", flush=True)
        began = now()
        parts[name]()
        times.append(f"{name} {now() - began:.1f} s")
        print(f"  {times[-1]}", flush=True)
    print(f"recorder: passed; {', '.join(times)}")


if __name__ == "__main__":
    main()
