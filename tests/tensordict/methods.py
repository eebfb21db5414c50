# SPDX-License-Identifier: BSL-1.0
"""Keeps methods.json, the table of the public methods of Python's TensorDict, true.

    methods.py <the repository's root>

For each method the table says either what does it in weft, and which test case shows that, or why
nothing does. What it names must be there. If tensordict can be imported (`./dev test
--with-python`), the table must have all of its methods, and no other. Prints how many there are.
"""

import json
import pathlib
import re
import sys


def main():
    root = pathlib.Path(sys.argv[1])
    table = json.loads((root / "tests/tensordict/methods.json").read_text())
    headers = "\n".join(p.read_text() for p in (root / "include/weft/tensordict").glob("*.hpp"))
    sources = "\n".join(p.read_text() for p in (root / "tests/tensordict").glob("*.cpp"))
    sources = re.sub(r'"\s*\n\s*"', "", sources)
    cases = set(re.findall(r'TEST_CASE\(\s*"((?:[^"\\]|\\.)*)"', sources))
    wrong = []
    for name, says in table.items():
        if "not" in says:
            if len(says) != 1 or len(says["not"]) < 10:
                wrong.append(f"{name}: no reason")
            continue
        if not re.search(r"(?<!\w)" + re.escape(says["weft"]) + r"(?!\w)", headers):
            wrong.append(f"{name}: no header has {says['weft']}")
        if says["test"] not in cases:
            wrong.append(f"{name}: there is no test case '{says['test']}'")
    try:
        from tensordict import TensorDict
        public = {n for n in dir(TensorDict) if not n.startswith("_")}
        wrong += [f"{n}: Python has it, the table has not" for n in sorted(public - set(table))]
        wrong += [f"{n}: Python does not have it" for n in sorted(set(table) - public)]
    except ImportError:
        pass
    for w in wrong:
        print(w)
    there = sum("not" not in says for says in table.values())
    print(f"{len(table)} methods, {there} of them in weft, {len(wrong)} errors")
    return len(wrong)


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
