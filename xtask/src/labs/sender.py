"""Offers a stream with pylsl until it is ended: `sender.py NAME COUNT`, on the library that PYLSL_LIB names. Samples are
numbered. It pauses at SIGUSR1, and goes on at the next one."""

import itertools
import os
import signal
import sys
import time

import pylsl

name, count = sys.argv[1], int(sys.argv[2])
assert os.environ["LSL_STAGE_EXPECT"] in pylsl.library_info(), pylsl.library_info()
names = [name] if count == 1 else [f"{name}{number}" for number in range(count)]
outlets = [pylsl.StreamOutlet(pylsl.StreamInfo(each, "EEG", 1, 50.0, "float32", each)) for each in names]
pushes = [True]
signal.signal(signal.SIGUSR1, lambda *_: pushes.append(not pushes.pop()))
print("ready", flush=True)
for number in itertools.count():
    while not pushes[0]:
        time.sleep(0.02)
    for outlet in outlets:
        outlet.push_sample([float(number)])
    time.sleep(0.02)
