# SPDX-License-Identifier: BSL-1.0
"""torchrun, also where PyTorch's Python module lacks CUDA's libraries.

    python torchrun.py <folder for stand-ins> <torchrun's arguments>

weft installs libtorch without the 3 GB of CUDA libraries that only its GPU half needs, but the
loader wants them all before torchrun can start. Where one is missing, a stand-in takes its place:
it has the names and versions that libtorch asks for, and nothing ever calls it.
"""

import collections
import importlib.util
import os
import pathlib
import re
import shutil
import subprocess
import sys


def output(*command):
    return subprocess.run(command, capture_output=True, text=True, check=False).stdout


def missing_libraries(libraries):
    names = set()
    for library in libraries:
        names.update(re.findall(r"(\S+) => not found", output("ldd", str(library))))
    return sorted(names)


def versions_by_file(libraries):
    """Which symbol versions are wanted of which file."""
    wanted = collections.defaultdict(set)
    for library in libraries:
        file = None
        for line in output("readelf", "-VW", str(library)).splitlines():
            if found := re.search(r"File: (\S+)", line):
                file = found[1]
            elif file and (found := re.search(r"Name: (\S+)\s+Flags", line)):
                wanted[file].add(found[1])
            elif not line.strip():
                file = None
    return wanted


def undefined_symbols(libraries):
    """The symbols wanted, by version; those without one under the empty text."""
    symbols = collections.defaultdict(set)
    defined = set()
    for library in libraries:
        wanted = output("nm", "-D", "--undefined-only", "--with-symbol-versions", str(library))
        for name, version in re.findall(r"\bU ([A-Za-z_]\w*)(?:@+(\S+))?", wanted):
            symbols[version].add(name)
        there = output("nm", "-D", "--defined-only", str(library))
        defined.update(re.findall(r" [A-Za-z] (\w+)", there))
    symbols[""] -= defined
    return symbols


def stand_in(folder, compiler, name, by_version):
    source, script = folder / (name + ".c"), folder / (name + ".map")
    functions = sorted(set().union(*by_version.values())) if by_version else []
    source.write_text("".join(f"void {f}(void) {{}}\n" for f in functions))
    command = [compiler, "-shared", "-fPIC", "-w", "-fno-builtin", "-nostdlib",
               f"-Wl,-soname,{name}", str(source), "-o", str(folder / name)]
    if versions := {v: names for v, names in by_version.items() if v}:
        script.write_text("".join(f"{v} {{ global: {' '.join(n + ';' for n in sorted(names))} }};\n"
                                  for v, names in sorted(versions.items())))
        command.append(f"-Wl,--version-script={script}")
    subprocess.run(command, check=True)


def make_stand_ins(folder):
    compiler = next(filter(None, map(shutil.which, ("cc", "gcc", "clang", "clang-19"))), "cc")
    root = pathlib.Path(importlib.util.find_spec("torch").origin).parent
    libraries = sorted((root / "lib").glob("lib*.so*"))
    versions = versions_by_file(libraries)
    symbols = undefined_symbols(libraries)
    folder.mkdir(parents=True, exist_ok=True)
    for name in missing_libraries(libraries):
        by_version = {v: symbols[v] for v in versions.get(name, ()) if symbols.get(v)}
        if not by_version:  # told by their names: libcufile.so.0 has cuFileRead, libnccl ncclSend
            prefix = re.sub(r"^lib|\.so.*", "", name).lower()
            plain = {s for s in symbols[""] if s.lower().startswith(prefix)}
            by_version = {"": plain} if plain else {}
        stand_in(folder, compiler, name, by_version)


def main():
    folder, arguments = pathlib.Path(sys.argv[1]), sys.argv[2:]
    environment = dict(os.environ)
    loads = [sys.executable, "-c", "import torch.distributed.run"]
    if subprocess.run(loads, capture_output=True, check=False).returncode != 0:
        make_stand_ins(folder)
        before = environment.get("LD_LIBRARY_PATH")
        environment["LD_LIBRARY_PATH"] = str(folder) + (":" + before if before else "")
    run = [sys.executable, "-m", "torch.distributed.run", *arguments]
    os.execve(sys.executable, run, environment)


if __name__ == "__main__":
    main()
