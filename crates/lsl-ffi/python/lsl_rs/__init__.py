"""The Lab Streaming Layer library of lsl-rs, for pylsl and mne-lsl.

Installing this package is enough: every start of this Python runs ``point()`` (through
``lsl_rs.pth``), and pylsl and mne-lsl load our library. ``python -m lsl_rs doctor`` tells whether
they do.

This module runs at every start of Python: it imports nothing but what is loaded anyway.
"""

import os
import sys

#: The C library.
LIBRARY = os.path.join(
    os.path.dirname(os.path.abspath(__file__)),
    {"win32": "lsl.dll", "darwin": "liblsl.dylib"}.get(sys.platform, "liblsl.so.2"),
)

#: Where pylsl and mne-lsl look first.
VARIABLES = ("PYLSL_LIB", "MNE_LSL_LIB")

#: What this package set. Programs that this Python starts inherit it: another Python with this package
#: knows by it that nobody chose the library.
MARK = "LSL_RS_LIBRARY"


def point():
    """Points pylsl and mne-lsl at our library, unless the user chose one. ``LSL_RS=off`` does nothing,
    and undoes what a Python that started this one did."""
    inherited = os.environ.pop(MARK, None)
    for variable in VARIABLES:
        if inherited and os.environ.get(variable) == inherited:
            del os.environ[variable]
    if os.environ.get("LSL_RS") == "off":
        return
    # mne-lsl looks at PYLSL_LIB too: who set that one alone chose for both.
    chosen = os.environ.get("PYLSL_LIB")
    for variable in VARIABLES:
        if not (os.environ.get(variable) or chosen):
            os.environ[variable] = LIBRARY
    os.environ[MARK] = LIBRARY


point()
