"""A foreign LSL peer for the interop tests: one process, one liblsl, many streams.

Reads one JSON request per line on stdin, answers one JSON line per request on stdout, in the order in
which requests finish: every request runs on a thread of its own, so that several tests share a process
and a blocked pull holds up nobody else.

    {"id": 7, "cmd": "pull", "inlet": 3, "timeout": 5.0}
    {"id": 7, "stamp": "40c81cd6e631f8a1", "data": "0000803f00000040"}
    {"id": 8, "error": "lost"}

It talks to the C API by `ctypes` rather than through a binding, because nothing may be lost on the way:
numbers travel as the hex of their little-endian bytes, strings as a list of hex texts, time stamps as
the hex of their IEEE bits. LSLAPICFG names the configuration, the first argument the library.
"""

import ctypes as c
import json
import struct
import sys
import threading

ERRORS = {-1: "timeout", -2: "lost", -3: "argument", -4: "internal"}

# format: (code in the C API, suffix of the typed functions, element type)
FORMATS = {
    "float32": (1, "f", c.c_float),
    "double64": (2, "d", c.c_double),
    "string": (3, "buf", c.c_char_p),
    "int32": (4, "i", c.c_int32),
    "int16": (5, "s", c.c_int16),
    "int8": (6, "c", c.c_int8),
    "int64": (7, "l", c.c_int64),
}

# result, arguments: p pointer or handle, s text, i int, d double, l unsigned long
SIGNATURES = {
    "lsl_protocol_version": "i",
    "lsl_library_version": "i",
    "lsl_library_info": "s",
    "lsl_last_error": "s",
    "lsl_local_clock": "d",
    "lsl_create_streaminfo": "pssidis",
    "lsl_destroy_streaminfo": "vp",
    "lsl_get_xml": "pp",
    "lsl_get_desc": "pp",
    "lsl_get_uid": "sp",
    "lsl_get_name": "sp",
    "lsl_get_source_id": "sp",
    "lsl_get_version": "ip",
    "lsl_get_channel_format": "ip",
    "lsl_get_channel_count": "ip",
    "lsl_append_child": "pps",
    "lsl_append_child_value": "ppss",
    "lsl_create_outlet_ex": "ppiii",
    "lsl_destroy_outlet": "vp",
    "lsl_wait_for_consumers": "ipd",
    "lsl_have_consumers": "ip",
    "lsl_get_info": "pp",
    "lsl_resolve_bypred": "ipisid",
    "lsl_create_inlet": "ppiii",
    "lsl_destroy_inlet": "vp",
    "lsl_open_stream": "vpdp",
    "lsl_close_stream": "vp",
    "lsl_get_fullinfo": "ppdp",
    "lsl_time_correction_ex": "dpppdp",
    "lsl_set_postprocessing": "ipi",
    "lsl_samples_available": "ip",
    "lsl_destroy_string": "vp",
    "lsl_push_sample_buftp": "ipppdi",
    "lsl_push_chunk_buftp": "ipppldi",
    "lsl_push_chunk_buftnp": "ippplpi",
    "lsl_pull_sample_buf": "dpppidp",
    "lsl_pull_chunk_buf": "lpppplldp",
}
for _suffix in "fdiscl":
    SIGNATURES[f"lsl_push_sample_{_suffix}tp"] = "ippdi"
    SIGNATURES[f"lsl_push_chunk_{_suffix}tp"] = "ippldi"
    SIGNATURES[f"lsl_push_chunk_{_suffix}tnp"] = "ipplpi"
    SIGNATURES[f"lsl_pull_sample_{_suffix}"] = "dppidp"
    SIGNATURES[f"lsl_pull_chunk_{_suffix}"] = "lppplldp"
# What only our library has (lslx.h).
OURS = {
    "lslx_is_encrypted": "ip",
    "lslx_peer_fingerprint": "pp",
    "lslx_peer_name": "pp",
    "lslx_cipher": "pp",
    "lslx_last_security_error": "pp",
}
KINDS = {
    "v": None,
    "p": c.c_void_p,
    "s": c.c_char_p,
    "i": c.c_int32,
    "d": c.c_double,
    "l": c.c_ulong,
}


class Failed(Exception):
    """The library refused; the text goes back as the reply's `error`."""


def load(path):
    """Load a library and declare what is called, so that no handle is cut to 32 bits."""
    library = c.CDLL(path)
    declare(library, SIGNATURES)
    if hasattr(library, "lslx_is_encrypted"):
        declare(library, OURS)
    return library


def declare(library, signatures):
    for name, kinds in signatures.items():
        function = getattr(library, name)
        function.restype = KINDS[kinds[0]]
        function.argtypes = [KINDS[kind] for kind in kinds[1:]]


def owned_text(library, pointer):
    """A text that the library gave away, and which is released here."""
    text = c.string_at(pointer)
    library.lsl_destroy_string(pointer)
    return text


def encryption(library, inlet):
    """What our library says of the connection of an inlet."""

    def told(function):
        return owned_text(library, getattr(library, function)(inlet)).decode()

    encrypted = library.lslx_is_encrypted(inlet)
    check(encrypted)
    return {
        "encrypted": encrypted,
        "name": told("lslx_peer_name"),
        "fingerprint": told("lslx_peer_fingerprint"),
        "cipher": told("lslx_cipher"),
        "refusal": told("lslx_last_security_error"),
    }


def stamp_to_hex(stamp):
    return struct.pack(">d", stamp).hex()


def stamp_from_hex(text):
    return struct.unpack(">d", bytes.fromhex(text))[0]


def check(code):
    if code < 0:
        raise Failed(ERRORS.get(code, f"code {code}"))


class Stream:
    """An outlet or inlet with what is needed to read and write its values."""

    def __init__(self, pointer, kind, format_name, channels):
        self.pointer = pointer
        self.kind = kind
        self.format = format_name
        self.channels = channels
        _, self.suffix, self.element = FORMATS[format_name]
        # One call at a time: recovery and closing must not race a pull of the same test.
        self.lock = threading.Lock()


class Peer:
    def __init__(self, library):
        self.lib = library
        self.lock = threading.Lock()
        self.objects = {}
        self.next_handle = 1

    # -- bookkeeping -----------------------------------------------------------------------------

    def keep(self, thing):
        with self.lock:
            handle = self.next_handle
            self.next_handle += 1
            self.objects[handle] = thing
        return handle

    def stream(self, request, kind):
        stream = self.objects[request[kind]]
        assert stream.kind == kind, f"handle {request[kind]} is no {kind}"
        return stream

    def owned_text(self, pointer):
        return owned_text(self.lib, pointer).hex()

    # -- values ----------------------------------------------------------------------------------

    def array_in(self, stream, data):
        """Request values to (elements, arguments of the C call that carry them)."""
        if stream.format == "string":
            texts = [bytes.fromhex(text) for text in data]
            pointers = (c.c_char_p * len(texts))(*texts)
            lengths = (c.c_uint32 * len(texts))(*map(len, texts))
            return len(texts), (pointers, lengths)
        raw = bytes.fromhex(data)
        count = len(raw) // c.sizeof(stream.element)
        return count, ((stream.element * count).from_buffer_copy(raw),)

    def array_out(self, stream, count):
        """Room for `count` values: arguments of the C call that fills it."""
        if stream.format == "string":
            return (c.c_void_p * count)(), (c.c_uint32 * count)()
        return ((stream.element * count)(),)

    def taken(self, stream, room, count):
        """The first `count` values of `room`, as the reply carries them."""
        if stream.format != "string":
            return bytes(room[0])[: count * c.sizeof(stream.element)].hex()
        texts = []
        for pointer, length in zip(room[0][:count], room[1][:count]):
            texts.append(c.string_at(pointer, length).hex())
            self.lib.lsl_destroy_string(pointer)
        return texts

    # -- commands --------------------------------------------------------------------------------

    def cmd_hello(self, _):
        return {
            "library": self.lib.lsl_library_version(),
            "protocol": self.lib.lsl_protocol_version(),
            "info": (self.lib.lsl_library_info() or b"").decode(),
        }

    def cmd_clock(self, _):
        return {"stamp": stamp_to_hex(self.lib.lsl_local_clock())}

    def cmd_outlet(self, request):
        code = FORMATS[request["format"]][0]
        info = self.lib.lsl_create_streaminfo(
            request["name"].encode(),
            request.get("type", "test").encode(),
            request["channels"],
            request.get("rate", 100.0),
            code,
            request.get("source_id", "").encode(),
        )
        if not info:
            raise Failed("streaminfo refused")
        self.describe(self.lib.lsl_get_desc(info), request.get("desc", []))
        pointer = self.lib.lsl_create_outlet_ex(
            info, request.get("chunk", 0), request.get("buffer", 360), request.get("flags", 0)
        )
        self.lib.lsl_destroy_streaminfo(info)
        if not pointer:
            raise Failed("outlet refused")
        handle = self.keep(Stream(pointer, "outlet", request["format"], request["channels"]))
        return {"outlet": handle}

    def describe(self, node, children):
        """Append `[name, text or null, children]` entries below a node of the description."""
        for name, text, below in children:
            if text is None:
                child = self.lib.lsl_append_child(node, name.encode())
            else:
                # The C API answers with the parent here; texts have no children below them.
                self.lib.lsl_append_child_value(node, name.encode(), text.encode())
                child = None
            if below:
                self.describe(child, below)

    def cmd_push(self, request):
        stream = self.stream(request, "outlet")
        _, values = self.array_in(stream, request["data"])
        push = getattr(self.lib, f"lsl_push_sample_{stream.suffix}tp")
        stamp = stamp_from_hex(request["stamp"]) if "stamp" in request else 0.0
        with stream.lock:
            check(push(stream.pointer, *values, stamp, int(request.get("pushthrough", True))))
        return {}

    def cmd_push_chunk(self, request):
        stream = self.stream(request, "outlet")
        count, values = self.array_in(stream, request["data"])
        through = int(request.get("pushthrough", True))
        if "stamps" in request:
            each = [stamp_from_hex(stamp) for stamp in request["stamps"]]
            stamps = (c.c_double * len(each))(*each)
            push = getattr(self.lib, f"lsl_push_chunk_{stream.suffix}tnp")
        else:
            stamps = stamp_from_hex(request["stamp"]) if "stamp" in request else 0.0
            push = getattr(self.lib, f"lsl_push_chunk_{stream.suffix}tp")
        with stream.lock:
            check(push(stream.pointer, *values, count, stamps, through))
        return {}

    def cmd_consumers(self, request):
        """Whether somebody is connected, waiting for it up to `timeout`."""
        stream = self.stream(request, "outlet")
        if request.get("timeout", 0.0) > 0.0:
            found = self.lib.lsl_wait_for_consumers(stream.pointer, request["timeout"])
        else:
            found = self.lib.lsl_have_consumers(stream.pointer)
        return {"found": bool(found)}

    def cmd_resolve(self, request):
        room = (c.c_void_p * 256)()
        count = self.lib.lsl_resolve_bypred(
            room, len(room), request["predicate"].encode(), request.get("minimum", 1), request["timeout"]
        )
        check(count)
        return {
            "infos": [
                {
                    "info": self.keep(pointer),
                    "name": self.lib.lsl_get_name(pointer).hex(),
                    "source_id": self.lib.lsl_get_source_id(pointer).hex(),
                    "uid": self.lib.lsl_get_uid(pointer).decode(),
                    "version": self.lib.lsl_get_version(pointer),
                    "xml": self.owned_text(self.lib.lsl_get_xml(pointer)),
                }
                for pointer in room[:count]
            ]
        }

    def cmd_inlet(self, request):
        info = self.objects[request["info"]]
        code = self.lib.lsl_get_channel_format(info)
        channels = self.lib.lsl_get_channel_count(info)
        pointer = self.lib.lsl_create_inlet(
            info, request.get("buffer", 360), request.get("chunk", 0), int(request.get("recover", True))
        )
        if not pointer:
            raise Failed("inlet refused")
        name = next(name for name, entry in FORMATS.items() if entry[0] == code)
        if "processing" in request:
            check(self.lib.lsl_set_postprocessing(pointer, request["processing"]))
        return {"inlet": self.keep(Stream(pointer, "inlet", name, channels))}

    def cmd_open(self, request):
        code = c.c_int32(0)
        stream = self.stream(request, "inlet")
        self.lib.lsl_open_stream(stream.pointer, request["timeout"], c.byref(code))
        check(code.value)
        return {}

    def cmd_pull(self, request):
        """One sample; `stamp` is absent when none came in time."""
        stream = self.stream(request, "inlet")
        room = self.array_out(stream, stream.channels)
        code = c.c_int32(0)
        pull = getattr(self.lib, f"lsl_pull_sample_{stream.suffix}")
        with stream.lock:
            stamp = pull(stream.pointer, *room, stream.channels, request["timeout"], c.byref(code))
        check(code.value)
        if stamp == 0.0:
            return {}
        return {"stamp": stamp_to_hex(stamp), "data": self.taken(stream, room, stream.channels)}

    def cmd_pull_chunk(self, request):
        """Up to `samples` samples; returns when they are there or `timeout` has passed."""
        stream = self.stream(request, "inlet")
        samples = request["samples"]
        room = self.array_out(stream, samples * stream.channels)
        stamps = (c.c_double * samples)()
        code = c.c_int32(0)
        pull = getattr(self.lib, f"lsl_pull_chunk_{stream.suffix}")
        with stream.lock:
            count = pull(
                stream.pointer,
                *room,
                stamps,
                samples * stream.channels,
                samples,
                request["timeout"],
                c.byref(code),
            )
        check(code.value)
        got = count // stream.channels
        return {
            "stamps": [stamp_to_hex(stamp) for stamp in stamps[:got]],
            "data": self.taken(stream, room, count),
        }

    def cmd_xml(self, request):
        """The full information: of an outlet as made, of an inlet as fetched from its outlet."""
        if "outlet" in request:
            info = self.lib.lsl_get_info(self.stream(request, "outlet").pointer)
        else:
            code = c.c_int32(0)
            stream = self.stream(request, "inlet")
            info = self.lib.lsl_get_fullinfo(stream.pointer, request["timeout"], c.byref(code))
            check(code.value)
        text = self.owned_text(self.lib.lsl_get_xml(info))
        self.lib.lsl_destroy_streaminfo(info)
        return {"xml": text}

    def cmd_time_correction(self, request):
        code = c.c_int32(0)
        remote, uncertainty = c.c_double(0), c.c_double(0)
        offset = self.lib.lsl_time_correction_ex(
            self.stream(request, "inlet").pointer,
            c.byref(remote),
            c.byref(uncertainty),
            request["timeout"],
            c.byref(code),
        )
        check(code.value)
        return {
            "offset": stamp_to_hex(offset),
            "remote_time": stamp_to_hex(remote.value),
            "uncertainty": stamp_to_hex(uncertainty.value),
        }

    def cmd_encryption(self, request):
        return encryption(self.lib, self.stream(request, "inlet").pointer)

    def last_error(self):
        """What the library has to say of the call that just failed on this thread."""
        return self.lib.lsl_last_error().decode(errors="replace")

    def cmd_close(self, request):
        """Destroy an info, outlet or inlet."""
        with self.lock:
            thing = self.objects.pop(request["handle"])
        if not isinstance(thing, Stream):
            self.lib.lsl_destroy_streaminfo(thing)
            return {}
        with thing.lock:
            getattr(self.lib, f"lsl_destroy_{thing.kind}")(thing.pointer)
        return {}


def serve(peer, lines, out):
    """Answer requests until the input ends."""
    out_lock = threading.Lock()

    def answer(request):
        try:
            reply = getattr(peer, "cmd_" + request["cmd"])(request)
        except Failed as failure:
            reply = {"error": str(failure)}
            if text := peer.last_error():
                reply["text"] = text
        except Exception as mistake:  # a mistake in a test must reach that test, not end the peer
            reply = {"error": f"peer.py: {type(mistake).__name__}: {mistake}"}
        with out_lock:
            out.write(json.dumps({"id": request["id"], **reply}) + "\n")
            out.flush()

    for line in lines:
        threading.Thread(target=answer, args=(json.loads(line),), daemon=True).start()


if __name__ == "__main__":
    serve(Peer(load(sys.argv[1])), sys.stdin, sys.stdout)
