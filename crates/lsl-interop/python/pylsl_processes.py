"""How processes with streams begin and end, with pylsl on whatever library PYLSL_LIB names:
`pylsl_processes.py CHECK`. Idioms of the field: each check passes on liblsl 1.17.7 and 1.18.0 and on ours.
"""

import multiprocessing
import os
import signal
import subprocess
import sys
import threading
import time

import pylsl

PATIENCE = 20.0
SAMPLES = 20


def announce(name, channels=2):
    source_id = f"{name}-{os.getpid()}"
    info = pylsl.StreamInfo(name, "check", channels, 100.0, "float32", source_id)
    return pylsl.StreamOutlet(info), source_id


def find(source_id):
    (info,) = pylsl.resolve_byprop("source_id", source_id, timeout=PATIENCE)
    return info


def receive(inlet, first):
    for number in range(first, first + SAMPLES):
        sample, stamp = inlet.pull_sample(PATIENCE)
        assert (sample, stamp) == ([number, -number], 1000.0 + number), (sample, stamp, number)


def send(outlet, first):
    for number in range(first, first + SAMPLES):
        outlet.push_sample([number, -number], 1000.0 + number)


def wait_for(event):
    assert event.wait(PATIENCE)


def settle():
    """liblsl may miss what is pushed right after `open_stream` returned, and says when in no way."""
    time.sleep(0.5)


def ended_well(*workers):
    for worker in workers:
        worker.join(PATIENCE)
        assert worker.exitcode == 0, worker.exitcode


def read_inherited(inlet, is_open, close):
    inlet.open_stream(PATIENCE)
    is_open.set()
    receive(inlet, 0)
    assert inlet.info(PATIENCE).name() == "unopened"
    inlet.time_correction(PATIENCE)
    wait_for(close)


def fork_unopened():
    """An inlet that was made and not used belongs to whoever uses it first."""
    context = multiprocessing.get_context("fork")
    outlet, source_id = announce("unopened")
    inlet = pylsl.StreamInlet(find(source_id))
    is_open, close = context.Event(), context.Event()
    worker = context.Process(target=read_inherited, args=(inlet, is_open, close))
    worker.start()
    wait_for(is_open)
    # And to the parent all the same.
    inlet.open_stream(PATIENCE)
    settle()
    send(outlet, 0)
    receive(inlet, 0)
    close.set()
    ended_well(worker)
    send(outlet, SAMPLES)
    receive(inlet, SAMPLES)


def read_found(info, is_open):
    inlet = pylsl.StreamInlet(info)
    inlet.open_stream(PATIENCE)
    is_open.set()
    receive(inlet, 0)


def fork_found():
    """What was found before the fork is used in several children at once."""
    context = multiprocessing.get_context("fork")
    outlet, source_id = announce("found")
    info = find(source_id)
    opened = [context.Event() for _ in range(3)]
    workers = [context.Process(target=read_found, args=(info, event)) for event in opened]
    for worker in workers:
        worker.start()
    for event in opened:
        wait_for(event)
    settle()
    send(outlet, 0)
    ended_well(*workers)
    assert info.source_id() == source_id


def serve(name, source_ids, go):
    outlet, source_id = announce(name)
    source_ids.put(source_id)
    assert outlet.wait_for_consumers(PATIENCE)
    wait_for(go)
    send(outlet, 0)
    # Readers take it before the stream ends.
    settle()


def read_from_worker(method):
    context = multiprocessing.get_context(method)
    # The parent has streams of its own.
    own, own_id = announce(f"own-{method}")
    own_inlet = pylsl.StreamInlet(find(own_id))
    own_inlet.open_stream(PATIENCE)
    settle()
    source_ids, go = context.Queue(), context.Event()
    worker = context.Process(target=serve, args=(f"worker-{method}", source_ids, go))
    worker.start()
    inlet = pylsl.StreamInlet(find(source_ids.get(timeout=PATIENCE)))
    inlet.open_stream(PATIENCE)
    settle()
    go.set()
    receive(inlet, 0)
    ended_well(worker)
    send(own, 0)
    receive(own_inlet, 0)


def spawn_worker():
    """A worker in a new interpreter serves a stream."""
    read_from_worker("spawn")


def fork_worker():
    """A forked worker of a process that has streams serves a stream."""
    read_from_worker("fork")


LIVES = """
import os, sys, threading
import pylsl
info = pylsl.StreamInfo("life", "check", 2, 100.0, "float32", f"life-{os.getpid()}")
outlet = pylsl.StreamOutlet(info)
(found,) = pylsl.resolve_byprop("source_id", info.source_id(), timeout=20.0)
inlet = pylsl.StreamInlet(found)
inlet.open_stream(20.0)
def pull():
    while True:
        inlet.pull_sample(0.2)
print("ready", flush=True)
"""


def life(end):
    return subprocess.Popen([sys.executable, "-c", LIVES + end], stdout=subprocess.PIPE)


def ends(end, status):
    process = life(end)
    assert process.stdout.readline().rstrip() == b"ready"
    assert process.wait(PATIENCE) == status, process.returncode


def exit_with_streams():
    """A process may end without destroying anything."""
    ends("", 0)
    ends("sys.exit(3)", 3)
    ends("os._exit(4)", 4)
    ends("threading.Thread(target=pull, daemon=True).start(); os._exit(0)", 0)


def interrupt_pull():
    """Ctrl-C arrives when a pull ends, and the inlet goes on."""
    # What runs in the background of a shell inherits that it is ignored.
    signal.signal(signal.SIGINT, signal.default_int_handler)
    outlet, source_id = announce("interrupted")
    inlet = pylsl.StreamInlet(find(source_id))
    inlet.open_stream(PATIENCE)
    settle()
    begin = time.monotonic()
    threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT)).start()
    try:
        while time.monotonic() < begin + PATIENCE:
            inlet.pull_sample(0.5)
    except KeyboardInterrupt:
        pass
    else:
        raise AssertionError("no KeyboardInterrupt")
    assert time.monotonic() < begin + PATIENCE / 2
    send(outlet, 0)
    receive(inlet, 0)


def kill_pull():
    """Where Ctrl-C has its default action it ends a blocked pull with the process."""
    reset = "import signal; signal.signal(signal.SIGINT, signal.SIG_DFL)\n"
    say = "print('pulling', flush=True)\n"
    process = life(reset + say + "inlet.pull_sample()")
    assert process.stdout.readline() == b"ready\n"
    assert process.stdout.readline() == b"pulling\n"
    time.sleep(0.3)
    process.send_signal(signal.SIGINT)
    assert process.wait(PATIENCE) == -signal.SIGINT, process.returncode


if __name__ == "__main__":
    expected = os.environ.get("LSL_EXPECT_LIBRARY", "")
    assert expected in pylsl.library_info(), pylsl.library_info()
    globals()[sys.argv[1]]()
