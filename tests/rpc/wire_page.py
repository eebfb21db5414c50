#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Computes ids, signatures and frames from the words of include/weft/wire/header.hpp, and of the
comments that it names, alone; and compares them with the literal ones that the C++ tests expect of
every compiler, and say and hear on the wire. Then reads that page: the header's fields are 64 bytes
without a gap, and it names what the code below it has.

usage: wire_page.py <folder of the tests>
"""

import hashlib
import hmac
import json
import re
import struct
import sys


def fnv(data):
    state = 0xCBF29CE484222325
    for byte in data:
        state = (state ^ byte) * 0x100000001B3 % 2**64
    return state


def number(value):
    return struct.pack("<Q", value)


def kind(k, *parts):
    return bytes([k]) + b"".join(parts)


def text(value):
    return number(len(value.encode())) + value.encode()


VOID = kind(0)
BOOL = kind(1, number(1))
CHAR = kind(2, number(1))
INT = kind(3, number(4))
INT64 = kind(3, number(8))
UINT8 = kind(4, number(1))
UINT16 = kind(4, number(2))
FLOAT = kind(5, number(4))
DOUBLE = kind(5, number(8))


def enum(of):
    return kind(6, of)


STRING = kind(7, number(1), CHAR)


def vector(of):
    return kind(8, number(1), of)


def set_of(of):
    return kind(9, number(1), of)


def map_of(key, value):
    return kind(11, number(2), key, value)


def multimap(key, value):
    return kind(12, number(2), key, value)


def optional(of):
    return kind(13, number(1), of)


def unique_ptr(of):
    return kind(14, number(1), of)


def pair(a, b):
    return kind(15, number(2), a, b)


def tuple_of(*of):
    return kind(16, number(len(of)), *of)


def variant(*of):
    return kind(17, number(len(of)), *of)


def array(count, of):
    return kind(18, number(count), of)


def duration(num, den, of):
    return kind(19, number(num), number(den), of)


def time_point(of):
    return kind(20, number(1), of)


def complex_of(of):
    return kind(21, number(1), of)


def aggregate(*members):
    return kind(22, number(len(members)), *members)


def again(levels):
    return kind(23, number(levels))


def named(name, *parts):
    return kind(24, text(name), *parts)


def own(name, *arguments):
    return kind(25, text(name), number(len(arguments)), *arguments)


def signature(*descriptions):
    state = fnv(b"".join(descriptions))
    return (state ^ (state >> 32)) & 0xFFFFFFFF


OPAQUE = named("opaque")
MONOSTATE = aggregate()
POINT = aggregate(DOUBLE, DOUBLE)
TREE = aggregate(enum(UINT8), vector(again(1)), variant(MONOSTATE, pair(BOOL, CHAR)))
METRES = text("metres") + enum(INT)
ODD_IN_EVEN = aggregate(vector(again(2)))

# What stands between CHECK( and == in the C++ tests.
SIGNATURES = {
    "function<&scale>::signature": signature(DOUBLE, DOUBLE, INT),
    "function<&quiet>::signature": signature(VOID),
    "function<&greet>::signature": signature(STRING, STRING, vector(INT)),
    "function<&make_stage>::signature": signature(OPAQUE, INT),
    "function<&stage::forward>::signature": signature(DOUBLE, DOUBLE),
    "function<&move_only>::signature": signature(unique_ptr(INT), unique_ptr(INT)),
    "function<weft::constructor<stage, const int&>>::signature": signature(OPAQUE, INT),
    "function<&everything>::signature": signature(
        map_of(STRING, TREE),
        tuple_of(FLOAT, INT64),
        optional(complex_of(DOUBLE)),
        array(3, UINT16),
        set_of(INT),
        multimap(INT, named("functions::with_format 3")),
        duration(1, 1000, INT64),
        time_point(duration(1, 1, INT64)),
    ),
    "structure_of<void>()": signature(VOID),
    "structure_of<int>()": signature(INT),
    "structure_of<std::string>()": signature(STRING),
    "structure_of<std::vector<double>>()": signature(vector(DOUBLE)),
    "structure_of<std::map<std::string, std::vector<std::uint8_t>>>()": signature(
        map_of(STRING, vector(UINT8))
    ),
    "structure_of<std::variant<std::monostate, int, std::string>>()": signature(
        variant(MONOSTATE, INT, STRING)
    ),
    "structure_of<std::chrono::duration<std::int64_t, std::nano>>()": signature(
        duration(1, 10**9, INT64)
    ),
    "structure_of<line>()": signature(aggregate(POINT, POINT)),
    "structure_of<arrays>()": signature(aggregate(array(3, INT), array(2, array(2, STRING)))),
    "structure_of<node>()": signature(aggregate(INT, vector(again(1)))),
    "structure_of<even>()": signature(aggregate(vector(ODD_IN_EVEN), vector(again(1)))),
    "structure_of<boxed<foreign>>()": signature(named("boxed", named("foreign"))),
    "structure_of<own_encoding>()": signature(own("own_encoding")),
    "structure_of<own_box<std::vector<own_encoding>>>()": signature(
        own("own_box", vector(own("own_encoding")))
    ),
    "structure_of<own_box<own_encoding>>()": signature(own("own_box", own("own_encoding"))),
    "structure_of<own_row<>>()": signature(own("own_row")),
    "structure_of<own_row<metres>>()": signature(own("own_row", METRES)),
    "structure_of<own_row<own_unit::metres, int>>()": signature(own("own_row", METRES, INT)),
    "structure_of<own_row<tag<metres>, tag<>>>()": signature(
        own(
            "own_row",
            text("tag") + number(1) + METRES + aggregate(),
            text("tag") + number(0) + aggregate(),
        )
    ),
    "structure_of<own_row<std::vector<metres>>>()": signature(own("own_row", vector(METRES))),
    "structure_of<own_tree>()": signature(aggregate(INT, vector(own("own_box", text("own_tree") + again(2))))),
    "structure_hash<void, small, std::tuple<>>()": signature(VOID, enum(UINT8), tuple_of()),
}

NAMES = {
    "global_function": "&global_function",
    "identities::plain": "&plain",
    "identities::quiet": "&quiet",
    "identities::a::b_1::c::f": "&a::b_1::c::f",
    "identities::shape::area": "&shape::area",
    "identities::shape::sides": "&shape::sides",
    "identities::shape::count": "&shape::count",
    "identities::shape::corner::angle": "&shape::corner::angle",
    "identities::shape::shape": "constructor<shape, int>",
    "box": 'named<"box", &box<int>::get>',
    "identities::generic<int>": "&generic<int>",
    "identities::of_value<(identities::color)1>": "&of_value<color::green>",
    "identities::nest<identities::nest<int>>::as<double>": "&nest<nest<int>>::as<double>",
    "identities::wide<double>": "&wide<double>",
}
IDS = {f"function_id<{spelled}>()": fnv(name.encode()) for name, spelled in NAMES.items()}

# ── frames (wire/header.hpp) ──

HELLO, WELCOME, REFUSE, REQUEST, REPLY, FAILURE, CANCEL, CONTROL, PING, WINDOW = range(1, 11)
BULK, CHALLENGE, PROOF, READY, RREF, AUTOGRAD = 11, 12, 13, 14, 16, 24
NO_REPLY, ON_BULK = 1, 4
TENSORS_SECTION, RREF_SECTION, AUTOGRAD_SECTION = 1, 2, 3


def u8(value):
    return struct.pack("<B", value)


def u32(value):
    return struct.pack("<I", value)


def string(value):
    return u32(len(value.encode())) + value.encode()


def many(encode, values):
    return u32(len(values)) + b"".join(encode(value) for value in values)


VERSION = 4


def frame(of_kind, payload=b"", sections=(), tensors=(), **fields):
    flags, call, function = (fields.pop(name, 0) for name in ("flags", "call", "function"))
    types, deadline = (fields.pop(name, 0) for name in ("signature", "deadline"))
    assert not fields
    table = b"".join(number(len(tensor)) for tensor in tensors)
    for section, content in sections:
        table += struct.pack("<HHI", section, 0, len(content)) + content
    head = b"WEFT" + struct.pack("<BBHQQII", VERSION, of_kind, flags, call, function, types, deadline)
    head += struct.pack("<QQHHIQ", 0, 0, len(sections), len(tensors), len(table), len(payload))
    return head + payload + table + b"".join(tensors)


MINUTE = 60_000_000  # deadlines are in microseconds
REQUEST_COST = 1024  # what a small request takes of the window (engine/link/window.hpp)


def request(name, types, payload=b"", sections=(), call=0, flags=0, deadline=MINUTE):
    fields = {"function": fnv(name.encode()), "signature": signature(*types)}
    return frame(REQUEST, payload, sections, call=call, flags=flags, deadline=deadline, **fields)


def reply(call, payload=b"", credit=REQUEST_COST):
    return frame(REPLY, payload, call=call, function=credit)


# ── errors (wire/error_codec.hpp) ──

WEFT_ERROR, GENERIC_ERROR = 1, 2
CANCELLED, UNKNOWN_FUNCTION, REMOTE_EXCEPTION, WRONG_PEER = 2, 5, 7, 13
LOCAL, TRANSPORT, REMOTE_RUNTIME, REMOTE_USER = range(4)
NOT_SENT, NOT_EXECUTED, MAYBE_EXECUTED, EXECUTED = range(4)
NO_CAUSE = u8(0)


def error(code, origin, execution, *texts, category=WEFT_ERROR, cause=NO_CAUSE, **fields):
    """texts: what went wrong, peer, function, remote type."""
    numbers = [fields.get(name, 0) for name in ("incarnation", "deadline", "elapsed")]
    out = struct.pack("<BiBBQqq", category, code, origin, execution, *numbers)
    return out + b"".join(string(text) for text in (*texts, "", "", "", "")[:4]) + cause


def failure(call, what, credit=0):
    return frame(FAILURE, what, call=call, function=credit)


# ── the handshake (engine/link/handshake.hpp) ──

TOKEN = f"{0xABC:016x}{0xDEF:016x}"


def speaker(rank, nonce):
    ids = {"incarnation": f"{5:016x}{rank:016x}", "nonce": f"{nonce:016x}{nonce + 1:016x}"}
    return {"weft": VERSION, "features": ["bulk"], "for": "calls", "rank": rank, "to": 1 - rank, **ids}


def proof(verb, *speakers):
    lines = [f"weft {VERSION} {verb} for calls"] + [f"{s['rank']} {s['incarnation']} {s['nonce']}" for s in speakers]
    lines = "".join(line + "\n" for line in lines)
    return {"proof": hmac.new(TOKEN.encode(), lines.encode(), hashlib.sha256).hexdigest()}


def greeting(of_kind, members):
    """The order of the members, and spaces, are free; these are weft's."""
    return frame(of_kind, json.dumps(members, sort_keys=True, separators=(",", ":")).encode())


CONNECTING, ACCEPTING = speaker(1, 150), speaker(0, 100)

# ── the end of a run (engine/shutdown/shutdown.hpp) ──

FINISHED, FAILED, LOST, ENDED, COUNT, COUNTS, GONE = range(1, 8)


def control(what, rank, why="", more=b""):
    return frame(CONTROL, u8(what) + u32(rank) + string(why) + more)


def report(peer, sent, finished, down):
    return u32(peer) + number(sent) + number(finished) + u8(down)


def counts(round_):
    """Of worker 1, which has sent five requests to worker 0 and finished none of it."""
    return control(COUNTS, 1, more=number(round_) + many(lambda r: report(*r), [(0, 5, 0, 0)]))


ADD_CALL, ADD = 0x700000003, ("wire_frames::add", [INT, INT, INT])
NEVER_CALL, TOO_MUCH_CALL = 0x800000003, 0x900000004
INT_MAX = 2**31 - 1
TOO_LARGE = error(
    REMOTE_EXCEPTION, REMOTE_USER, EXECUTED, "too large", "worker0", "", "std::overflow_error"
)
GIVEN_UP = error(CANCELLED, REMOTE_RUNTIME, MAYBE_EXECUTED, "the function was cancelled")
NO_SUCH_FUNCTION = error(
    UNKNOWN_FUNCTION,
    REMOTE_RUNTIME,
    NOT_EXECUTED,
    *("no such function", "worker2", "geo::scale", "geo::error"),
    incarnation=0x0102030405060708,
    deadline=2_000_000,
    elapsed=3000,
    cause=error(2, LOCAL, NOT_SENT, category=GENERIC_ERROR),  # ENOENT
)

# A request whose two buffers of 10 and 3 bytes are large tensors, and a reply.
BUFFERS = [b"\x01" * 10, b"\x02" * 3]
DESCRIPTORS = [(TENSORS_SECTION, bytes(5))]
LARGE = {"call": ADD_CALL, "function": fnv(b"wire_frames::add"), "signature": signature(*ADD[1])}


def head_alone(of_kind, payload, **fields):
    whole = frame(of_kind, payload, DESCRIPTORS, BUFFERS, flags=ON_BULK, **fields)
    return whole[: -sum(len(b) for b in BUFFERS)]


RPC_FRAMES = {
    "large_request": head_alone(REQUEST, bytes(range(9)), **LARGE),
    "large_of_request": frame(
        BULK, bytes(range(9)), DESCRIPTORS, BUFFERS, deadline=REQUEST, **LARGE
    ),
    "large_reply": head_alone(REPLY, bytes(range(9)), call=ADD_CALL, function=REQUEST_COST),
    "large_of_reply": frame(BULK, b"", DESCRIPTORS, BUFFERS, deadline=REPLY, call=ADD_CALL),
    "hello": greeting(HELLO, CONNECTING),
    "challenge": greeting(CHALLENGE, ACCEPTING | proof("accepts", CONNECTING, ACCEPTING)),
    "proof": greeting(PROOF, proof("connects", CONNECTING, ACCEPTING)),
    "welcome": greeting(WELCOME, {}),
    "ready": greeting(READY, {}),
    "refusal": frame(REFUSE, error(WRONG_PEER, LOCAL, NOT_SENT, "not you")),
    "add_request": request(*ADD, struct.pack("<ii", 2, 3), call=ADD_CALL),
    "add_reply": reply(ADD_CALL, struct.pack("<i", 5)),
    "note_post": request(
        "wire_frames::note", [VOID, STRING], string("bye"), flags=NO_REPLY, deadline=0
    ),
    "never_request": request("wire_frames::never", [VOID], call=NEVER_CALL),
    "never_cancel": frame(CANCEL, call=NEVER_CALL),
    "never_failure": failure(NEVER_CALL, GIVEN_UP),
    "too_much_request": request(*ADD, struct.pack("<ii", INT_MAX, 1), call=TOO_MUCH_CALL),
    "too_much_failure": failure(TOO_MUCH_CALL, TOO_LARGE, credit=REQUEST_COST),
    "failure_with_cause": failure(ADD_CALL, NO_SUCH_FUNCTION),
    "window_wanted": frame(WINDOW),
    "window_credit": frame(WINDOW, function=REQUEST_COST),
    "ping": frame(PING),
    "control_finished": control(FINISHED, 1),
    "control_failed": control(FAILED, 1, "no data"),
    "control_lost": control(LOST, 0, "no data"),
    "control_ended": control(ENDED, 1),
    "control_count_1": control(COUNT, 1, more=number(1)),
    "control_count_2": control(COUNT, 1, more=number(2)),
    "control_counts_1": counts(1),
    "control_counts_2": counts(2),
}

# ── references (rref/ledger_wire.hpp) ──

RREF_ADD, RREF_DEL, RREF_ADDED, RREF_DELED, RREF_XACK = range(5)
FINE, OBJECT_LOST = 0, 1
TARGET, CREATION = 1, 2


def rref_id(owner, creator, serial):
    return struct.pack("<IIQ", owner, creator, serial)


def rref_message(of_kind, name, sequence=0, transfer=0, why=FINE):
    return struct.pack("<BBHI", of_kind, why, 0, 1) + name + number(sequence) + number(transfer)


def rref_section(flags=0, about=b"", transfers=()):
    return [(RREF_SECTION, u8(flags) + about + many(bytes, transfers))]


COUNTER = rref_id(0, 1, 1)  # of worker 0, made by worker 1
OTHER = rref_id(0x04030201, 0x08070605, 0x100F0E0D0C0B0A09)
MAKE_CALL, COUNTER_CALL, GIVE_CALL = 0x700000003, 0x800000004, 0x900000004

RREF_FRAMES = {
    "make_request": request(
        *("rref_frames::counter::counter", [OPAQUE, INT], struct.pack("<i", 7)),
        rref_section(CREATION, COUNTER + number(1)),
        call=MAKE_CALL,
    ),
    "make_reply": reply(MAKE_CALL),
    "created": frame(RREF, rref_message(RREF_ADDED, COUNTER, sequence=1)),
    "add_request": request(
        *("rref_frames::counter::add", [INT, INT], struct.pack("<i", 5)),
        rref_section(TARGET, COUNTER),
        call=COUNTER_CALL,
    ),
    "add_reply": reply(COUNTER_CALL, struct.pack("<i", 12)),
    "give_request": request(
        *("rref_frames::give", [INT, named("weft::rref 1")], u32(0)),
        rref_section(transfers=[COUNTER + number(1)]),
        call=GIVE_CALL,
    ),
    "give_reply": reply(GIVE_CALL, struct.pack("<i", 1)),
    "given": frame(RREF, rref_message(RREF_XACK, COUNTER, transfer=1)),
    "dropped": frame(RREF, rref_message(RREF_DEL, COUNTER, sequence=2)),
    "forgotten": frame(RREF, rref_message(RREF_DELED, COUNTER, sequence=2)),
    "add_message": rref_message(RREF_ADD, OTHER, sequence=2, transfer=3),
    "del_message": rref_message(RREF_DEL, OTHER, sequence=4),
    "added_message": rref_message(RREF_ADDED, OTHER, sequence=5, why=OBJECT_LOST),
    "deled_message": rref_message(RREF_DELED, OTHER, sequence=6),
    "xack_message": rref_message(RREF_XACK, OTHER, transfer=7),
}

# ── gradients (autograd/messages.hpp) ──

NEED, ACK, GO, GRAD, DONE, ABORT, END, WHICH, WAITS = range(9)
RELEASE, JOINED = 16, 17
RETAIN, CREATE, INPUTS, REPLY_NONE, LOST_WORKER = 1, 1, 1, 1, 2
FAST = 1


def context(creator, serial):
    return number(creator << 44 | serial)


PASS = context(1, 2) + u32(3) + u32(4)  # of that context, begun by worker 3, its fourth


def of_pass(of_kind, body=b""):
    return u8(of_kind) + PASS + body


def autograd(message, sections=(), tensors=()):
    return frame(AUTOGRAD, u32(len(message)) + message, sections, tensors)


def settings(retention=0, graph=0, leaves=0):
    return u8(retention) + u8(graph) + u8(leaves)


def grad(message, slots, *present, opens=b""):
    bits = sum(1 << slot for slot in present).to_bytes((slots + 7) // 8, "little")
    return of_pass(GRAD, number(message) + u32(slots) + bits + u8(1 if opens else 0) + opens)


FLOAT_TYPE, DOUBLE_TYPE, STRIDED = 6, 7, 1


def tensor_row(dtype, buffer, size):
    """A descriptor of one dimension, without gaps (wire/tensor_desc.hpp)."""
    return struct.pack("<BBBBHHIIQQQ", dtype, STRIDED, 0, 1, 0, 0, buffer, 0, 0, size, 1)


def tensors_section(*rows):
    return [(TENSORS_SECTION, u32(len(rows)) + u32(len(rows)) + b"".join(rows))]


def autograd_section(of_context):
    return [(AUTOGRAD_SECTION, of_context + number(0) + u8(0) + many(u32, []))]


WAVE_FRAMES = {
    "need": of_pass(
        NEED, u32(5) + settings(RETAIN) + u8(REPLY_NONE) + many(number, [6, 0x0102030405060708])
    ),
    "ack": of_pass(ACK, u32(5) + u32(3) + many(u32, [1, 2]) + many(u32, [2])),
    "go": of_pass(GO),
    "grad": grad(6, 10, 0, 9),
    "opening": grad(6, 1, 0, opens=settings(RETAIN, CREATE, INPUTS) + u32(7)),
    "done": of_pass(DONE, many(u32, [1, 2])),
    "abort_pass": of_pass(ABORT, u32(2) + u8(LOST_WORKER) + string("gone")),
    "end": of_pass(END, many(number, [])),
    "riding": of_pass(END, many(number, [9])),
    "which": of_pass(WHICH),
    "waits": of_pass(WAITS, string("message 6")),
}

STEP = context(1, 1)
AUTOGRAD_FRAMES = {
    "gradients": autograd(
        grad(6, 3, 0, 2),
        tensors_section(tensor_row(FLOAT_TYPE, 0, 2), tensor_row(DOUBLE_TYPE, 1, 1)),
        [struct.pack("<ff", 1.5, -2), struct.pack("<d", 3)],
    ),
    "reach_request": request(
        "autograd_frames::reach", [VOID], b"", autograd_section(STEP), call=ADD_CALL
    ),
    "reach_reply": reply(ADD_CALL),
    "nothing_request": request(
        "autograd_frames::nothing", [VOID], b"", autograd_section(STEP), call=ADD_CALL
    ),
    "release": autograd(u8(RELEASE) + STEP),
    "joined": autograd(u8(JOINED) + STEP + many(u32, [2])),
}


def literals(path):
    with open(path, encoding="utf-8") as file:
        source = re.sub(r"\s+", " ", file.read())
    found = re.findall(r"CHECK\(([^;]*?) == (0x[0-9a-f]+)u\);", source)
    return {what: int(value, 16) for what, value in found if not what.startswith("weft::name_hash")}


def hex_literals(path):
    with open(path, encoding="utf-8") as file:
        source = re.sub(r"\s+", " ", file.read())
    found = re.findall(r'string_view (\w+) = ((?:"[0-9a-f]*" ?)+);', source)
    return {what: bytes.fromhex(re.sub('[" ]', "", value)) for what, value in found}


def shown(value):
    return value.hex() if isinstance(value, bytes) else f"{value:#x}"


def enumerators(source, name):
    """Values that are not given count up from the one before."""
    body = re.search(rf"enum class {name} [^{{]*{{(.*?)}};", source, re.S).group(1)
    values, last = {}, -1
    for item in filter(None, map(str.strip, re.sub(r"//.*", "", body).split(","))):
        word, _, given = item.partition(" = ")
        last = values[word] = int(given) if given else last + 1
    return values


def listed(page, begin, end):
    """Numbers and words of a list of the page: "1 hello, 2 welcome," """
    part = page[page.index(begin) + len(begin) : page.index(end)]
    heads = [line[:25] for line in part.splitlines()]
    return {word: int(value) for head in heads for value, word in re.findall(r"(\d+) ([a-z]+)", head)}


def numbered(page, begin, end):
    """What the page lists: "1 timed_out, 2 cancelled"."""
    part = page[page.index(begin) + len(begin) :]
    return {word: int(value) for value, word in re.findall(r"(\d+) (\w+)", part[: part.index(end)])}


def page_faults(headers):
    with open(f"{headers}/wire/header.hpp", encoding="utf-8") as file:
        code, page = file.read().split("\n// The wire page: ", 1)
    with open(f"{headers}/wire/impl/header.hpp", encoding="utf-8") as file:
        code += file.read()
    faults = []
    at = 0
    for offset, size, field in re.findall(r"^// +(\d+) +(\d+) (\w+) ", page, re.M):
        if int(offset) != at:
            faults.append(f"the field {field} is at {offset}, the one before it ends at {at}")
        at = int(offset) + int(size)
        stored = re.search(rf"store\(p \+ {offset}, (?:h\.|frame_|wire_)(\w+?)(?:_bytes)?\)", code)
        if not stored or stored.group(1) != field:
            faults.append(f"the code does not store {field} at {offset}")
    if at != 64:
        faults.append(f"the header's fields end at {at}")
    for name, begin, end in (
        ("frame_kind", "What the payloads hold", "What the sections hold"),
        ("section_kind", "What the sections hold:", "not sent yet"),
    ):
        have, said = enumerators(code, name), listed(page, begin, end)
        for word in sorted(have.keys() ^ said.keys()):
            faults.append(f"{name} {word} is not in both, the page and the code")
        for word in sorted(have.keys() & said.keys()):
            if have[word] != said[word]:
                faults.append(f"{name} {word} is {have[word]}, {said[word]} on the page")
    for file, name, begin, end in (
        ("core/error.hpp", "errc", "code of weft's errors", "; of generic"),
        ("rref/ledger_types.hpp", "message_kind", "kind: ", "; why"),
        ("autograd/messages.hpp", "abort_reason", "reason: ", "; text"),
    ):
        with open(f"{headers}/{file}", encoding="utf-8") as of:
            have = enumerators(of.read(), name)
        said = numbered(page[page.index("Numbers that these pages") :], begin, end)
        if have != said:
            faults.append(f"{name} is {have}, but on the page {said}")
    return faults


def main():
    wrong = 0
    for fault in page_faults(f"{sys.argv[1]}/../include/weft"):
        print(f"wire/header.hpp: {fault}")
        wrong += 1
    count = 0
    for file, read, expected in (
        ("rpc/identity.cpp", literals, IDS),
        ("rpc/function.cpp", literals, {k: v for k, v in SIGNATURES.items() if k[0] == "f"}),
        ("wire/structure.cpp", literals, {k: v for k, v in SIGNATURES.items() if k[0] == "s"}),
        ("rpc/frames.cpp", hex_literals, RPC_FRAMES),
        ("rref/pure_frames.cpp", hex_literals, RREF_FRAMES),
        ("autograd/wave_frames.cpp", hex_literals, WAVE_FRAMES),
        ("autograd/frames.cpp", hex_literals, AUTOGRAD_FRAMES),
    ):
        literal = read(f"{sys.argv[1]}/{file}")
        count += len(expected)
        for what in sorted(literal.keys() ^ expected.keys()):
            print(f"{file}: {what} is not in both, the C++ test and this script")
            wrong += 1
        for what in sorted(literal.keys() & expected.keys()):
            if literal[what] != expected[what]:
                print(f"{file}: {what} is\n  {shown(literal[what])}, but")
                print(f"  {shown(expected[what])} by the page")
                wrong += 1
    print(f"{count} ids, signatures and frames, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
