"""Offers a stream with pylsl until it is ended: `sender.py NAME COUNT [HOW]`, on the library that PYLSL_LIB names. HOW
says what is wrong with it. Samples are numbered. It pauses at SIGUSR1, and goes on at the next one."""

import itertools
import os
import resource
import signal
import sys
import time

import pylsl

name, count = sys.argv[1], int(sys.argv[2])
how = sys.argv[3] if len(sys.argv) > 3 else ""
RATE = 2.0 if how == "rarely" else 50.0
_, most = resource.getrlimit(resource.RLIMIT_NOFILE)
resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
assert os.environ["LSL_STAGE_EXPECT"] in pylsl.library_info(), pylsl.library_info()
channels = 512 if how == "wide" else 1
announced = 0.0 if how == "irregular" else RATE
names = [name] if count == 1 else [f"{name}{number}" for number in range(count)]
outlets = [pylsl.StreamOutlet(pylsl.StreamInfo(each, "EEG", channels, announced, "float32", each)) for each in names]
pushes = [True]
signal.signal(signal.SIGUSR1, lambda *_: pushes.append(not pushes.pop()))
print("ready", flush=True)
began = due = pylsl.local_clock()
for number in itertools.count():
    while not pushes[0]:
        time.sleep(0.02)
        due = pylsl.local_clock()
    # A busy machine makes up for what it missed.
    due += 1 / RATE
    time.sleep(max(0.0, due - pylsl.local_clock()))
    stamp = {"unix": time.time(), "fast": began + 60 * 0.002 + (pylsl.local_clock() - began) * 1.002}.get(how, 0.0)
    is_left_out = {"stalls": True, "drops": number % 10 == 5, "half": number % 2 == 1}.get(how, False)
    for outlet in outlets if not is_left_out else ():
        outlet.push_sample([float(number)] * channels, stamp)
