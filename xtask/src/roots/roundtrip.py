"""Fails unless pylsl runs on the library at a path that begins as told, and that library streams.

    roundtrip.py BEGINNING_OF_THE_PATH
"""

import sys

import pylsl

FORMATS = {
    pylsl.cf_float32: [1.5, -2.25, 3.0],
    pylsl.cf_double64: [0.1, 1e300, -3.0],
    pylsl.cf_int16: [-32768, 0, 32767],
    pylsl.cf_int64: [-(2**63), 0, 2**63 - 1],
    pylsl.cf_string: ["", "grüße", "x" * 300],
}


def loaded():
    """The files of liblsl in the memory of this process."""
    with open("/proc/self/maps", encoding="utf-8") as maps:
        words = [line.split() for line in maps]
    return {line[-1] for line in words if "liblsl" in line[-1]}


def stream(number, values):
    """One sample from an outlet to an inlet, bit by bit."""
    name = f"roundtrip-{number}"
    outlet = pylsl.StreamOutlet(pylsl.StreamInfo(name, "test", len(values), 0.0, number, name))
    found = pylsl.resolve_byprop("source_id", name, timeout=20)
    if len(found) != 1:
        sys.exit(f"{name}: {len(found)} streams found")
    inlet = pylsl.StreamInlet(found[0])
    inlet.open_stream(timeout=20)
    if not outlet.wait_for_consumers(20):
        sys.exit(f"{name}: nobody came")
    outlet.push_sample(values, 123.25)
    received = inlet.pull_sample(timeout=20)
    if received != (values, 123.25):
        sys.exit(f"{name}: sent {values}, received {received}")


def main():
    files = loaded()
    if len(files) != 1 or not all(file.startswith(sys.argv[1]) for file in files):
        sys.exit(f"not from {sys.argv[1]}, but {sorted(files)}")
    if not pylsl.library_info().startswith("lsl-rs "):
        sys.exit(f"a library that says of itself: {pylsl.library_info()}")
    for number, values in FORMATS.items():
        stream(number, values)


main()
