"""What pyxdf reads in a recording, held against what was sent."""

import csv
import logging
import sys
from pathlib import Path

import numpy as np
import pyxdf

from lab import HERE, expect

# The comparisons of `cargo xtask xdf`.
sys.path.insert(0, str(HERE.parents[2] / "crates/lsl-xdf/python"))
from check_xdf import SIZES, Complaints, difference, footer_of, hexed  # noqa: E402

COMPLAINTS = Complaints()
logging.getLogger("pyxdf.pyxdf").addHandler(COMPLAINTS)
logging.getLogger("pyxdf.pyxdf").propagate = False


def load(path):
    """Streams by name, timestamps as they stand in the file."""
    COMPLAINTS.lines.clear()
    # With everything that it does for users, too.
    pyxdf.load_xdf(str(path))
    streams, _ = pyxdf.load_xdf(
        str(path), synchronize_clocks=False, dejitter_timestamps=False
    )
    expect(not COMPLAINTS.lines, f"{path}: pyxdf says", *COMPLAINTS.lines)
    found = {stream["info"]["name"][0]: stream for stream in streams}
    expect(len(found) == len(streams), f"{path}: two streams of one name")
    return found


def form(stream):
    return stream["info"]["channel_format"][0]


def exact(values, form):
    """Values of samples in a flat list that compares bit by bit."""
    if form == "string":
        return [text for sample in values for text in sample]
    if form in ("float32", "double64"):
        # NaNs have many bits; these here are all the same one.
        flat = np.asarray(values, dtype=np.dtype(SIZES[form])).reshape(-1)
        return [bits if number == number else "nan" for bits, number in
                zip(hexed(flat, SIZES[form]), flat)]
    return [int(number) for sample in values for number in sample]


def samples(stream):
    return hexed(stream["time_stamps"]), exact(stream["time_series"], form(stream))


def footer_is_right(stream, name):
    """The footer tells what is in the file."""
    footer = footer_of(stream)
    expect(footer, f"{name} has no footer")
    stamps = hexed(stream["time_stamps"])
    expected = {
        "first": stamps[0] if stamps else footer["first"],
        "last": stamps[-1] if stamps else footer["last"],
        "count": len(stamps),
        "times": hexed(stream["clock_times"]),
        "values": hexed(stream["clock_values"]),
    }
    told = difference(expected, footer, f"{name}: footer")
    expect(told is None, told)


def is_piece_of(stream, sent, name):
    """The recording holds samples without a hole of those sent, bit by bit: the range of them."""
    stamps, values = samples(stream)
    sent_stamps, sent_values = hexed(sent[0]), exact(sent[1], form(stream))
    if not stamps:
        return 0, 0
    expect(stamps[0] in sent_stamps, f"{name}: its first sample was never sent")
    first = sent_stamps.index(stamps[0])
    end = first + len(stamps)
    channels = int(stream["info"]["channel_count"][0])
    told = difference(sent_stamps[first:end], stamps, f"{name}: stamps") or difference(
        sent_values[first * channels : end * channels], values, f"{name}: values"
    )
    expect(told is None, told)
    return first, end


def table(path, form):
    """Stamps, corrected stamps and values of a CSV file."""
    with open(path, newline="", encoding="utf-8") as file:
        rows = list(csv.reader(file))
    head, rows = rows[0], rows[1:]
    expect(head[:2] == ["timestamp", "timestamp_corrected"], path, head)
    read = {"string": str, "float32": np.float32, "double64": float}.get(form, int)
    columns = [float(row[0]) for row in rows], [float(row[1]) for row in rows]
    return *columns, [[read(text) for text in row[2:]] for row in rows]


def tables_are_equal(path, tables, read, corrected_within):
    """The tables that were made of a recording hold what pyxdf reads; how many values that is."""
    corrected, _ = pyxdf.load_xdf(str(path), dejitter_timestamps=False)
    corrected = {stream["info"]["name"][0]: stream["time_stamps"] for stream in corrected}
    streams = load(path)
    count = 0
    for name, stream in streams.items():
        number = stream["info"]["stream_id"]
        (file,) = Path(tables).glob(f"{Path(path).stem}_{number}_*")
        stamps, aligned, values = read(file, form(stream))
        expected_stamps, expected = samples(stream)
        told = difference(expected_stamps, hexed(stamps), f"{file}: stamps") or difference(
            expected, exact(values, form(stream)), f"{file}: values"
        )
        expect(told is None, told)
        apart = np.abs(np.asarray(aligned) - corrected[name]) if stamps else np.zeros(1)
        expect(apart.max() <= corrected_within, f"{file}: corrected stamps, {apart.max()} s apart")
        count += len(expected)
    expect(streams, f"{path}: no streams")
    return count
