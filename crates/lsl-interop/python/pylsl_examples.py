"""Runs pylsl's shipped examples, in pairs that belong together, for some seconds each.

    pylsl_examples.py PAIR

An example that runs for ever must still run when time is up and have printed what it prints when data
flow; one that ends must end well. PYLSL_LIB names the library. ReceiveAndPlot needs a Python with
pyqtgraph and gets a Qt without a display.
"""

import ctypes
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pylsl

EXAMPLES = Path(pylsl.__file__).parent / "examples"

# name: (sender, receiver, a text that the receiver prints once data came)
PAIRS = {
    "SendData": ("SendData", "ReceiveData", "["),
    "SendDataAdvanced": ("SendDataAdvanced", "ReceiveDataInChunks", "["),
    "GetTimeCorrection": ("SendData", "GetTimeCorrection", "Offset: "),
    "SendStringMarkers": ("SendStringMarkers", "ReceiveStringMarkers", "got "),
    "HandleMetadata": (None, "HandleMetadata", "C3"),
    "PerformanceTest": (None, "PerformanceTest", ""),
}

IS_WINDOWS = os.name == "nt"

# Lines that show that data flow; one could be luck.
ENOUGH = 3
PATIENCE = 20.0


def start(name):
    # Unbuffered, or nothing is to be read before the end.
    return subprocess.Popen(
        [sys.executable, "-u", EXAMPLES / f"{name}.py"],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        # A shell's background job ignores Ctrl-C, and so would everything it starts.
        preexec_fn=None if IS_WINDOWS else lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
    )


def stop(process):
    """End it as Ctrl-C does, which nobody can send on Windows; what it said that was not read yet."""
    if IS_WINDOWS:
        process.kill()
        return process.communicate()[0]
    process.send_signal(signal.SIGINT)
    try:
        said, _ = process.communicate(timeout=PATIENCE)
    except subprocess.TimeoutExpired:
        process.kill()
        process.communicate()
        raise AssertionError(f"{process.args[-1]} does not end on Ctrl-C") from None
    if process.returncode not in (0, -signal.SIGINT, 130, 1) or "Fatal" in said:
        raise AssertionError(f"{process.args[-1]} ended with {process.returncode}:\n{said[-2000:]}")
    # Whatever Python says about Ctrl-C is fine, any other exception is not.
    if "Error" in said:
        raise AssertionError(f"{process.args[-1]} said:\n{said[-2000:]}")
    return said


def lines_of(process, text):
    """Lines that hold `text`, as they come, until there are enough."""
    found, said = 0, []
    for line in process.stdout:
        said.append(line)
        found += text in line
        if found >= ENOUGH:
            return
    raise AssertionError(f"{process.args[-1]} ended early:\n" + "".join(said)[-2000:])


def receive_and_plot():
    """The example as a user starts it, with somebody who looks at the window after some seconds."""
    os.environ["QT_QPA_PLATFORM"] = "offscreen"
    import pyqtgraph
    from pylsl.examples import ReceiveAndPlot
    from pyqtgraph.Qt import QtCore

    # PySide6 6.12 takes a reference of None with each repaint, on any library (2,000 of 8,400 in these seconds on
    # liblsl 1.18.0), and CPython aborts at exit once there is none left.
    for _ in range(100_000):
        ctypes.pythonapi.Py_IncRef(ctypes.py_object(None))
    sending = [start("SendData"), start("SendStringMarkers")]
    try:
        for kind in ("EEG", "Markers"):
            assert pylsl.resolve_byprop("type", kind, timeout=PATIENCE)
        application = pyqtgraph.mkQApp()
        points = []

        def look():
            for widget in application.topLevelWidgets():
                for item in getattr(widget, "listDataItems", list)():
                    x, _ = item.getData()
                    points.append(0 if x is None else len(x))
            application.quit()

        QtCore.QTimer.singleShot(5000, look)
        ReceiveAndPlot.main()
    finally:
        for process in sending:
            process.kill()
            process.communicate()
    # Eight channels at 100 Hz, for some of these seconds.
    assert len(points) == 8 and min(points) > 100, points


def main(pair):
    if pair == "ReceiveAndPlot":
        receive_and_plot()
        return
    sender, receiver, text = PAIRS[pair]
    sending = start(sender) if sender else None
    receiving = start(receiver)
    try:
        if receiver == "HandleMetadata":
            said, _ = receiving.communicate(timeout=PATIENCE)
            assert receiving.returncode == 0 and text in said, said
        elif text:
            lines_of(receiving, text)
            stop(receiving)
        else:
            time.sleep(5.0)
            assert receiving.poll() is None, receiving.communicate()[0]
            stop(receiving)
        if sending:
            assert sending.poll() is None, sending.communicate()[0]
            stop(sending)
    finally:
        for process in (sending, receiving):
            if process:
                process.kill()


if __name__ == "__main__":
    wanted = os.environ.get("LSL_EXPECT_LIBRARY", "")
    assert wanted in pylsl.library_info(), f"not {wanted}: {pylsl.library_info()}"
    policy = os.environ.get("LSL_EXPECT_POLICY", "")
    assert pylsl.library_info().endswith(policy), f"not {policy}: {pylsl.library_info()}"
    main(sys.argv[1])
