#!/usr/bin/env python3
# SPDX-License-Identifier: BSL-1.0
"""Computes ids and signatures from the words of include/weft/wire/header.hpp alone, and compares
them with the literal ones that the C++ tests expect of every compiler. Then reads that page: the
header's fields are 64 bytes without a gap, and it names what the code below it has.

usage: wire_page.py <folder of the tests>
"""

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


def signature(*descriptions):
    state = fnv(b"".join(descriptions))
    return (state ^ (state >> 32)) & 0xFFFFFFFF


OPAQUE = named("opaque")
MONOSTATE = aggregate()
POINT = aggregate(DOUBLE, DOUBLE)
TREE = aggregate(enum(UINT8), vector(again(1)), variant(MONOSTATE, pair(BOOL, CHAR)))
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


def literals(path):
    with open(path, encoding="utf-8") as file:
        source = re.sub(r"\s+", " ", file.read())
    found = re.findall(r"CHECK\(([^;]*?) == (0x[0-9a-f]+)u\);", source)
    return {what: int(value, 16) for what, value in found if not what.startswith("weft::name_hash")}


def enumerators(source, name):
    body = re.search(rf"enum class {name} [^{{]*{{(.*?)}};", source, re.S).group(1)
    return {word: int(value) for word, value in re.findall(r"(\w+) = (\d+)", body)}


def listed(page, begin, end):
    """Numbers and words of a list of the page: "1 hello, 2 welcome," """
    part = page[page.index(begin) + len(begin) : page.index(end)]
    heads = [line[:25] for line in part.splitlines()]
    return {word: int(value) for head in heads for value, word in re.findall(r"(\d+) ([a-z]+)", head)}


def page_faults(path):
    with open(path, encoding="utf-8") as file:
        source = file.read()
    page, code = source.split("#pragma once", 1)
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
    return faults


def main():
    wrong = 0
    for fault in page_faults(f"{sys.argv[1]}/../include/weft/wire/header.hpp"):
        print(f"wire/header.hpp: {fault}")
        wrong += 1
    for file, expected in (
        ("rpc/identity.cpp", IDS),
        ("rpc/function.cpp", {k: v for k, v in SIGNATURES.items() if k.startswith("function<")}),
        ("wire/structure.cpp", {k: v for k, v in SIGNATURES.items() if k.startswith("struct")}),
    ):
        literal = literals(f"{sys.argv[1]}/{file}")
        for what in sorted(literal.keys() ^ expected.keys()):
            print(f"{file}: {what} is not in both, the C++ test and this script")
            wrong += 1
        for what in sorted(literal.keys() & expected.keys()):
            if literal[what] != expected[what]:
                print(f"{file}: {what} is {literal[what]:#x}, but {expected[what]:#x} by the page")
                wrong += 1
    print(f"{len(IDS) + len(SIGNATURES)} ids and signatures, {wrong} wrong")
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
