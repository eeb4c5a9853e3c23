"""pyxdf as the judge of our files, and files such as LabRecorder writes for us to read.

    check_xdf.py dump FILE      what pyxdf reads, as JSON
    check_xdf.py compare DIR    each NAME.xdf against what NAME.json says is in it
    check_xdf.py record DIR     write NAME.xdf as LabRecorder would, and NAME.json

Numbers are compared bit by bit: floats and timestamps are hexadecimal, integers decimal.
"""

import json
import logging
import struct
import sys
from pathlib import Path

import numpy as np
import pyxdf

SIZES = {"float32": "f", "double64": "d", "int32": "i", "int16": "h", "int8": "b", "int64": "q"}
BOUNDARY = bytes.fromhex("43A546DCCBF5410FB30ED5467383CBE4")


class Complaints(logging.Handler):
    """Collects what pyxdf logs as wrong with a file."""

    def __init__(self):
        super().__init__(logging.WARNING)
        self.lines = []

    def emit(self, record):
        line = record.getMessage()
        # About the rate and the number of clock offsets in made-up data, not about the file.
        if "effective sampling rate" not in line and "clock-segments differ" not in line:
            self.lines.append(line)


def hexed(numbers, code="d"):
    return [struct.pack(">" + code, number).hex() for number in numbers]


def values_of(stream, form):
    if form == "string":
        return [text for sample in stream["time_series"] for text in sample]
    flat = np.asarray(stream["time_series"]).reshape(-1)
    if form in ("float32", "double64"):
        return hexed(flat, SIZES[form])
    return [str(int(number)) for number in flat]


def footer_of(stream):
    info = (stream.get("footer") or {}).get("info")
    if not info:
        return None
    offsets = info.get("clock_offsets", [None])[0]
    offsets = offsets["offset"] if isinstance(offsets, dict) else []
    return {
        "first": hexed([float(info["first_timestamp"][0])])[0],
        "last": hexed([float(info["last_timestamp"][0])])[0],
        "count": int(info["sample_count"][0]),
        "times": hexed(float(offset["time"][0]) for offset in offsets),
        "values": hexed(float(offset["value"][0]) for offset in offsets),
    }


def dump(path):
    streams, _ = pyxdf.load_xdf(path, synchronize_clocks=False, dejitter_timestamps=False)
    return {
        "streams": [
            {
                "id": stream["info"]["stream_id"],
                "name": stream["info"]["name"][0],
                "format": stream["info"]["channel_format"][0],
                "channels": int(stream["info"]["channel_count"][0]),
                "stamps": hexed(stream["time_stamps"]),
                "values": values_of(stream, stream["info"]["channel_format"][0]),
                "times": hexed(stream["clock_times"]),
                "offsets": hexed(stream["clock_values"]),
                "footer": footer_of(stream),
            }
            for stream in streams
        ]
    }


def difference(expected, found, at=""):
    """Where two such descriptions differ first; None if they do not."""
    if isinstance(expected, dict) and isinstance(found, dict):
        for key in expected.keys() | found.keys():
            if (key in expected) != (key in found):
                return f"{at}.{key} is on one side only"
            told = difference(expected[key], found[key], f"{at}.{key}")
            if told:
                return told
        return None
    if isinstance(expected, list) and isinstance(found, list):
        if len(expected) != len(found):
            return f"{at} has {len(found)} entries, {len(expected)} expected"
        for index, (one, other) in enumerate(zip(expected, found)):
            told = difference(one, other, f"{at}[{index}]")
            if told:
                return told
        return None
    return None if expected == found else f"{at} is {found!r}, {expected!r} expected"


def compare(folder):
    complaints = Complaints()
    logging.getLogger("pyxdf.pyxdf").addHandler(complaints)
    logging.getLogger("pyxdf.pyxdf").propagate = False
    wrong = files = samples = 0
    for expected in sorted(Path(folder).glob("*.json")):
        path = expected.with_suffix(".xdf")
        files += 1
        complaints.lines.clear()
        try:
            found = dump(path)
            told = difference(json.loads(expected.read_text()), found)
            samples += sum(len(stream["stamps"]) for stream in found["streams"])
            # With everything that it does for users.
            pyxdf.load_xdf(path)
        except Exception as error:  # whatever it stumbles over
            told = f"{type(error).__name__}: {error}"
        told = told or "; ".join(complaints.lines)
        if told:
            wrong += 1
            print(f"WRONG {path.name}: {told}")
    print(f"pyxdf {pyxdf.__version__}: {files} files, {samples} samples, {wrong} wrong")
    return 1 if wrong or not files else 0


# What follows writes as LabRecorder does, quirks included.


def varlen(number):
    if number < 256:
        return struct.pack("<BB", 1, number)
    if number < 2**32:
        return struct.pack("<BI", 4, number)
    return struct.pack("<BQ", 8, number)


def chunk(tag, content):
    return varlen(len(content) + 2) + struct.pack("<H", tag) + content


class Stream:
    """A stream of a file as LabRecorder writes it, and what a reader has to find."""

    def __init__(self, number, form, channels, srate, name):
        self.number, self.form, self.channels, self.srate = number, form, channels, srate
        self.name = name
        self.interval = 1.0 / srate if srate else 0.0
        self.last = None
        self.stamps, self.values, self.offsets = [], [], []
        self.footer = None

    def header(self):
        # The layout of liblsl's XML: tabs, 16 digits, an empty desc.
        return chunk(
            2,
            struct.pack("<I", self.number)
            + (
                '<?xml version="1.0"?>\n<info>\n'
                f"\t<name>{self.name}</name>\n\t<type>EEG</type>\n"
                f"\t<channel_count>{self.channels}</channel_count>\n"
                f"\t<channel_format>{self.form}</channel_format>\n"
                "\t<source_id>id</source_id>\n"
                f"\t<nominal_srate>{self.srate:#.16g}</nominal_srate>\n"
                "\t<version>1.100000000000000</version>\n"
                "\t<created_at>12.50000000000000</created_at>\n"
                "\t<uid>39d71c4e-a901-4450-9e30-ee6f79450e0c</uid>\n"
                "\t<session_id>default</session_id>\n\t<hostname>lab</hostname>\n"
                "\t<v4address />\n\t<v4data_port>16572</v4data_port>\n"
                "\t<v4service_port>16572</v4service_port>\n\t<v6address />\n"
                "\t<v6data_port>0</v6data_port>\n\t<v6service_port>0</v6service_port>\n"
                "\t<desc />\n</info>\n"
            ).encode(),
        )

    def samples(self, stamps, values):
        """Stamps are left out on equality, the first of a chunk included, and only every second one:
        the elided one is not taken note of."""
        content = bytearray()
        for index, stamp in enumerate(stamps):
            implied = self.last is not None and self.srate and stamp == self.last + self.interval
            if implied and len(self.stamps) % 2:
                content += b"\0"
            else:
                content += b"\x08" + struct.pack("<d", stamp)
            self.last = stamp
            self.stamps.append(stamp)
            row = values[index * self.channels : (index + 1) * self.channels]
            for value in row:
                if self.form == "string":
                    content += varlen(len(value.encode())) + value.encode()
                else:
                    content += struct.pack("<" + SIZES[self.form], value)
        self.values += values
        # The number of samples always takes four bytes.
        head = struct.pack("<IBI", self.number, 4, len(stamps))
        return chunk(3, head + bytes(content))

    def offset(self, now, value):
        self.offsets.append((now - value, value))
        return chunk(4, struct.pack("<Idd", self.number, now - value, value))

    def close(self, off_by=0):
        offsets = "".join(
            f"<offset><time>{time!r}</time><value>{value!r}</value></offset>"
            for time, value in self.offsets
        )
        first, last = (self.stamps[0], self.stamps[-1]) if self.stamps else (0.0, 0.0)
        count = len(self.stamps) + off_by
        self.footer = {
            "first": hexed([first])[0],
            "last": hexed([last])[0],
            "count": count,
            "times": hexed(time for time, _ in self.offsets),
            "values": hexed(value for _, value in self.offsets),
        }
        xml = (
            '<?xml version="1.0"?><info>'
            f"<first_timestamp>{first!r}</first_timestamp>"
            f"<last_timestamp>{last!r}</last_timestamp>"
            f"<sample_count>{count}</sample_count>"
            f"<clock_offsets>{offsets}</clock_offsets></info>"
        )
        return chunk(6, struct.pack("<I", self.number) + xml.encode())

    def described(self):
        if self.form == "string":
            values = list(self.values)
        elif self.form in ("float32", "double64"):
            values = hexed(self.values, SIZES[self.form])
        else:
            values = [str(value) for value in self.values]
        return {
            "id": self.number,
            "name": self.name,
            "format": self.form,
            "channels": self.channels,
            "stamps": hexed(self.stamps),
            "values": values,
            "times": hexed(time for time, _ in self.offsets),
            "offsets": hexed(value for _, value in self.offsets),
            "footer": self.footer,
        }


def made_values(form, first, count):
    numbers = range(first, first + count)
    if form == "string":
        return ["ein märker " + "x" * (n % 400) for n in numbers]
    if form == "float32":
        return [float(np.float32(n / 3)) for n in numbers]
    if form == "double64":
        return [n / 7 for n in numbers]
    bits = {"int8": 7, "int16": 15, "int32": 31, "int64": 63}[form]
    return [(n * 7919) % 2**bits - 2 ** (bits - 1) for n in numbers]


def labrecorder_file(closed=True, off_by=0, late=False, private=False):
    """All formats, with and without a rate; what LabRecorder cannot record included."""
    head = '<?xml version="1.0"?>\n  <info>\n    <version>1.0</version>\n'
    head += "    <datetime>2026-11-22T08:00:00+0100</datetime>\n  </info>"
    file = b"XDF:" + chunk(1, head.encode())
    streams = []
    for form in [*SIZES, "string"]:
        for srate in (0.0, 250.0, 1000 / 3):
            number = len(streams) + 1
            name = f"{form} at {srate:.1f}"
            streams.append(Stream(number, form, 1 + number % 3, srate, name))
            file += streams[-1].header()
    # A marker stream that never sent anything.
    streams.append(Stream(90, "string", 1, 0.0, "silent"))
    file += streams[-1].header()
    now, first = 5000.0, 0
    for round_ in range(8):
        for stream in streams[:-1]:
            file += stream.offset(now, 0.001 * round_ + 1e-5 * stream.number)
            stamps = []
            for n in range(40):
                last = stamps[-1] if stamps else stream.last
                regular = stream.srate and n % 7 and last is not None
                stamps.append(last + stream.interval if regular else now + n / 300)
            values = made_values(stream.form, first, 40 * stream.channels)
            # In two chunks, so that one begins in the middle of a run.
            split = 18 * stream.channels
            file += stream.samples(stamps[:18], values[:split])
            file += stream.samples(stamps[18:], values[split:])
        first += 40
        now += 5.0
        if round_ % 2:
            file += chunk(5, BOUNDARY)
        if private:
            file += chunk(0x7A01, b"\x01" * (round_ * 100))
    if closed:
        for stream in streams:
            file += stream.close(off_by if stream.stamps else 0)
    if late:
        for stream in streams[:3]:
            values = made_values(stream.form, first, stream.channels)
            file += stream.samples([now], values)
    return file, {"streams": [stream.described() for stream in streams]}


def record(folder):
    folder = Path(folder)
    for name, (file, described) in {
        "plain": labrecorder_file(),
        "unfinished": labrecorder_file(closed=False),
        "count-off-by-one": labrecorder_file(off_by=1),
        "samples-behind-footer": labrecorder_file(late=True),
        "unknown-tags": labrecorder_file(private=True),
    }.items():
        (folder / f"{name}.xdf").write_bytes(file)
        (folder / f"{name}.json").write_text(json.dumps(described))
    return 0


def main():
    if len(sys.argv) != 3:
        sys.exit(__doc__)
    task, where = sys.argv[1:]
    if task == "dump":
        json.dump(dump(where), sys.stdout, indent=1)
        print()
        return 0
    return {"compare": compare, "record": record}[task](where)


if __name__ == "__main__":
    sys.exit(main())
