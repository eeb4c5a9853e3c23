"""What a library answers to predicates, malformed ones above all: `predicates.py every`.

With LSL_EXPECT_LIBRARY=lsl-rs the answers are compared with the file `predicates.json`. Without it the
answers of the library are printed as such a file: that is how it was made, from liblsl 1.18.0 and 1.17.7
(PYLSL_LIB names the library). Each predicate is asked of a resolver while one outlet is there, and the
answer is `refused` (an argument error), `found` or `none`; and whether the info of that outlet matches the
text as a whole query.
"""

import concurrent.futures
import json
import os
import sys
from pathlib import Path

import pylsl
from pylsl.lib import lib

import ctypes

ANSWERS = Path(__file__).with_name("predicates.json")
# Nobody who matches takes this long, on a machine that has other things to do.
PATIENCE = float(os.environ.get("LSL_PREDICATES_WAIT", "4"))


def predicates():
    """The texts, as bytes."""
    texts = ["", " ", "   ", "\t", "\r", "\n", " \t ", "\v", "\f", "\u00a0", "\u3000", "()", "( )"]
    texts += ["'", '"', "'a", "a'", "name='", "name='a", "name=\"a'", "name='a''", "''", "' '", '""', "'x'"]
    texts += ["(", ")", "[", "]", "((1)", "(1))", "name[", "name]", "name[]", "[1]", "name[1", "*[", "{}", "{"]
    texts += ["foo()", "foo(1)", "name()", "ends-with(name,'a')", "matches(name,'a')", "lower-case(name)",
              "contains(name)", "contains(name,'a','b')", "starts-with()", "not()", "not(", "count()", "count(1)",
              "last()", "position()", "last(1)", "true()", "false()", "true", "false", "true()()", "id('a')"]
    texts += ["name=", "name!=", "name<", "name and", "name or", "and", "or", "and name", "or name", "name and and",
              "name or or", "not", "=", "='a'", "==", "name=='x'", "name='x' and", "name='x' or", "name='x' name",
              "name='x' 'y'", "name name", "name,type", "name;", "name|", "|", "|name", "name|type", "name|1",
              "+", "-", "1+", "1-", "-1", "--1", "+1", "*", "**", "* *", "* * *", "name*", "1 div", "div", "mod 2",
              "1 div 0", "0 div 0", "1 mod 0", "!", "!name", "name!", "!=", "<", ">", "<>", "name<>'x'", "&", "&&",
              "name && type", "name || type", "||", "name~'x'", "name like 'x'", "name is 'x'"]
    texts += ["0", "1", "2", "1.5", "-0", "0.0", ".", "..", "...", ".5", "5.", "1.2.3", "1e3", "0x1", "1a", "00", "١"]
    texts += ["/", "//", "///", "//*", "/*", "/info", "info", "./name", "../info", "name/", "/name/", "name//", "//name",
              "@", "@*", "@name", "name/@", "::", "child::", "child::name", "self::info", "self::node()", "foo::name",
              "name:", ":name", "a:b", "a:*", "a:b:c", "text()", "node()", "comment()", "node(", "text(1)",
              "processing-instruction()", "processing-instruction('a')", "processing-instruction(a)"]
    texts += ["$a", "$", "name=$a", "#", "#name", "%", "%s", "%d", "\\", "name='\\'", "`", "^", "~", "name=`x`"]
    texts += ["näme", "name='ä'", "ä", "Ä='ä'", "name='\u65e5\u672c'", "\u65e5\u672c", "\U0001f600", "name='\U0001f600'",
              "\ufeff", "\ufeffname", "name\u200b", "na\u0301me", "‘name’", "name=“x”", "name＝'x'"]
    texts += ["\x01", "name\x01", "name='\x01'", "\x7f", "name\x7f", "\x1b[0m", "name='\x1b'", "\x80name", "name\x85"]
    texts += ["name\n", "\nname", "name\r\n", "name='a\nb'", "name\ttype", "na\nme", "name =\n'x'", "name='x'\r\nand 1"]
    texts += ["name='x' or '1'='1", "name='x' or '1'='1'", "' or ''='", "x' or 'y", "1=1", "1=2", "1=1 or 1=2",
              "1=2 or 1=1", "1 and 1", "1 and 0", "(1)", "((1))", "(name)", "(name", "(name]", "[name)", "<name>",
              "<!--", "&lt;", "&quot;", "name=&quot;x&quot;", "concat('a')", "concat('a','b')", "string()", "number()"]
    texts += ["a" * 1000, "'" + "a" * 3000 + "'", "name='" + "x" * 3000 + "'", "1" * 1000, " " * 1000, "1" + " " * 1000,
              " or ".join(["name='x'"] * 100), " or ".join(["name='x'"] * 100 + ["1"]), "(" * 30 + "1" + ")" * 30,
              "(" * 30 + "1" + ")" * 29, "-" * 500 + "1", "not(" * 20 + "1" + ")" * 20]
    latin = [b"\xff", b"name\xff", b"name='\xff'", b"\xc3", b"name='\xc3'", b"\xe4", b"\xc0\x80", b"\xed\xa0\x80"]
    seen = dict.fromkeys([text.encode() for text in texts] + latin)
    return list(seen)


def ask(predicate, patience=PATIENCE):
    found = (ctypes.c_void_p * 4)()
    count = lib.lsl_resolve_bypred(found, 4, predicate, 1, ctypes.c_double(patience))
    for info in found[: max(count, 0)]:
        lib.lsl_destroy_streaminfo(ctypes.c_void_p(info))
    if count == -3:
        return "refused"
    assert count >= 0, (predicate, count)
    return "found" if count else "none"


def shown(predicate):
    """Bytes as a text of JSON, each byte a character: not all are UTF-8."""
    return predicate.decode("latin-1")


def answers(expected):
    lib.lsl_resolve_bypred.argtypes = [ctypes.c_void_p, ctypes.c_uint, ctypes.c_char_p, ctypes.c_int, ctypes.c_double]
    lib.lsl_resolve_bypred.restype = ctypes.c_int
    lib.lsl_stream_info_matches_query.argtypes = [ctypes.c_void_p, ctypes.c_char_p]
    lib.lsl_destroy_streaminfo.argtypes = [ctypes.c_void_p]
    info = pylsl.StreamInfo("name", "type", 1, 100.0, "float32", "source")
    outlet = pylsl.StreamOutlet(info)
    texts = predicates()
    with concurrent.futures.ThreadPoolExecutor(12) as pool:
        given = list(pool.map(ask, texts))
    # Beside other programs an answer may take longer: asked once more, alone.
    for index, text in enumerate(texts):
        if given[index] == "none" and expected.get(shown(text), {}).get("answer") == "found":
            given[index] = ask(text, 5 * PATIENCE)
    del outlet
    matches = [bool(lib.lsl_stream_info_matches_query(info.obj, text)) for text in texts]
    return [
        {"predicate": shown(text), "answer": answer, "matches": match}
        for text, answer, match in zip(texts, given, matches)
    ]


def every():
    if os.environ.get("LSL_EXPECT_LIBRARY") != "lsl-rs":
        json.dump(answers({}), sys.stdout, indent=0)
        return
    assert "lsl-rs" in pylsl.library_info(), pylsl.library_info()
    expected = {case["predicate"]: case for case in json.loads(ANSWERS.read_text())["cases"]}
    # liblsl cuts a query at its line end and then refuses the rest; ours makes a blank of it.
    expected["\nname"]["answer"] = "found"
    got = {case["predicate"]: case for case in answers(expected)}
    wrong = {text: (expected.get(text), answer) for text, answer in got.items() if expected.get(text) != answer}
    assert not wrong, wrong
    assert set(got) == set(expected), set(got) ^ set(expected)


if __name__ == "__main__":
    {"every": every}[sys.argv[1]]()
