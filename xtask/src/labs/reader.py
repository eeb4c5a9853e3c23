"""Reads streams with pylsl on our library: `reader.py NAME...`. A line of JSON each time that one of them comes after a
pause, and now and then: when, how long the pause was and how many of its numbered samples are missing so far."""

import json
import os
import sys
import threading
import time

import pylsl

assert os.environ["LSL_STAGE_EXPECT"] in pylsl.library_info(), pylsl.library_info()
PAUSE = 0.3


def read(name):
    [info] = pylsl.resolve_byprop("name", name, 1, 20.0)
    inlet = pylsl.StreamInlet(info, max_buflen=360)
    last, missing, at, told = None, 0, time.monotonic(), 0.0
    while True:
        samples, _ = inlet.pull_chunk(timeout=0.05, max_samples=4096)
        now = time.monotonic()
        if not samples:
            continue
        for [number] in samples:
            if last is not None:
                missing += number - last - 1
            last = number
        if now - at > PAUSE or now - told > 0.25:
            line = {"stream": name, "at": now, "pause": now - at, "missing": int(missing)}
            # In one piece, as others write too.
            os.write(1, (json.dumps(line) + "\n").encode())
            told = now
        at = now


for name in sys.argv[1:]:
    threading.Thread(target=read, args=[name]).start()
