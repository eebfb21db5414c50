# SPDX-License-Identifier: BSL-1.0
"""Files of tensordicts both ways between Python's tensordict and weft: `./dev test --with-python`.

    exchange.py <the program tensordict_files> <folder> <seed> <cases>

For each random tensordict and each format: Python writes it; weft reads it, changes it and writes
it; Python compares that with its own change, changes it again and writes it; weft compares that
with its own second change. Prints "N files, 0 differences".
"""

import pathlib
import random
import subprocess
import sys

import tensordict
import torch
from tensordict import (LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict,
                        is_tensor_collection)

DTYPES = [torch.float32, torch.float64, torch.bfloat16, torch.float16, torch.int64, torch.int32,
          torch.int16, torch.int8, torch.uint8, torch.bool, torch.complex64, torch.complex128]
NAMES = ["a", "b", "obs", "next", "x y", "ü/ö", "a.b", "per%cent", "", ".", "..", 'q"\\', "A:B*?",
         "\t", "value", "0", "long" * 20]
VALUES = ["text", "", "ü \U0001f600", 3, -2**40, 2.5, float("nan"), float("-inf"), True, None,
          [1, [2, {"k": None}]], {"k": [1.5, "x"], "": {}}, "NaN", "Infinity"]


class Maker:
    def __init__(self, seed, ragged):
        self.random = random.Random(seed)
        self.ragged = ragged  # jagged nested tensors, which one format has
        torch.manual_seed(seed)

    def tensor(self, batch, plain):
        r = self.random
        shape = [*batch, *[r.randrange(0, 4) for _ in range(r.randrange(0, 3))]]
        dtype = r.choice([d for d in DTYPES if not plain or d != torch.complex128])
        if dtype == torch.bool:
            return torch.rand(shape) < 0.5
        if dtype.is_floating_point or dtype.is_complex:
            t = torch.randn(shape, dtype=torch.float64 if dtype.is_floating_point else dtype)
            t = t.to(dtype)
            if t.numel() and r.random() < 0.2:
                t.view(-1)[0] = float("nan")
            return t
        return torch.randint(0, 100, shape).to(dtype)

    def jagged(self, rows):
        r = self.random
        further = [r.randrange(1, 4) for _ in range(r.randrange(0, 2))]
        dtype = r.choice([torch.float32, torch.int64, torch.bfloat16])
        parts = [torch.randint(0, 100, [r.randrange(0, 5), *further]).to(dtype) for _ in range(rows)]
        made = torch.nested.nested_tensor(parts, layout=torch.jagged)
        return made.transpose(1, 2) if further and r.random() < 0.3 else made

    def dictionary(self, batch, depth, plain):
        r = self.random
        td = TensorDict({}, batch)
        for name in r.sample(NAMES, r.randrange(0, 6)):
            kind = r.random()
            if kind < 0.6 or depth == 3:
                td.set(name, self.tensor(batch, plain))
            elif kind < 0.75:
                more = [r.randrange(1, 3)] if r.random() < 0.3 else []
                td.set(name, self.dictionary([*batch, *more], depth + 1, plain))
            elif kind < 0.78 and self.ragged and len(batch) == 1:
                td.set(name, self.jagged(batch[0]))
            elif kind < 0.85:
                td.set(name, NonTensorData(r.choice(VALUES), batch_size=batch))
            elif plain or kind < 0.93 and not batch:
                td.set(name, self.tensor(batch, plain))
            elif kind < 0.93:
                td.set(name, self.data_stack(batch))
            else:
                td.set(name, self.stack(batch, depth + 1))
        return td

    def data_stack(self, batch):
        if len(batch) == 1:
            return NonTensorStack(*[NonTensorData(self.random.choice(VALUES[:10]))
                                    for _ in range(batch[0])], stack_dim=0)
        return NonTensorStack(*[self.data_stack(batch[1:]) for _ in range(batch[0])], stack_dim=0)

    def stack(self, batch, depth):
        """A lazy stack whose batch size begins with `batch`."""
        r = self.random
        dim = r.randrange(0, len(batch) + 1)
        size = batch[dim] if dim < len(batch) else r.randrange(1, 4)
        inner = [*batch[:dim], *batch[dim + 1:]]
        return LazyStackedTensorDict(*[self.dictionary(inner, depth, False) for _ in range(size)],
                                     stack_dim=dim)

    def root(self, plain):
        r = self.random
        batch = [r.randrange(1, 4) for _ in range(r.randrange(0, 3))]
        if not plain and r.random() < 0.1:
            return self.stack(batch, 1)
        td = self.dictionary(batch, 0, plain)
        if plain and batch and r.random() < 0.3:  # lazy stacks and names: Python's loader fails
            td.names = [r.choice(["time", None]) if i == 0 else None for i in range(len(batch))]
        return td


def change(td):
    """The same as in tensordict_files.cpp."""
    if isinstance(td, NonTensorStack) or isinstance(td, NonTensorData):
        return td
    if isinstance(td, LazyStackedTensorDict):
        return LazyStackedTensorDict(*[change(part) for part in td.tensordicts],
                                     stack_dim=td.stack_dim)
    out = change_tensors(td)
    out.set("from weft", torch.arange(out.numel()).reshape(out.batch_size))
    out.set("said/%", NonTensorData("weft ü", batch_size=out.batch_size))
    return out


def change_tensors(td):
    if isinstance(td, (NonTensorStack, NonTensorData)):
        return td
    if isinstance(td, LazyStackedTensorDict):
        return LazyStackedTensorDict(*[change_tensors(part) for part in td.tensordicts],
                                     stack_dim=td.stack_dim)
    out = TensorDict({}, td.batch_size)
    for key, value in td.items():
        value = td.get(key)
        if is_tensor_collection(value):
            out.set(key, change_tensors(value))
        elif value.is_nested:
            out.set(key, value + 1)
        else:
            value = value.detach().clone().as_subclass(torch.Tensor)
            out.set(key, value.logical_not() if value.dtype == torch.bool else value + 1)
    return out


def difference(a, b, where="root"):
    kinds = (NonTensorData, NonTensorStack, LazyStackedTensorDict, TensorDict)
    kind_a, kind_b = ([k for k in kinds if isinstance(x, k)][:1] for x in (a, b))
    if kind_a != kind_b:
        return f"{where} is {type(a).__name__} and {type(b).__name__}"
    if not kind_a and (a.is_nested or b.is_nested):
        same = a.is_nested and b.is_nested and len(a) == len(b) and all(
            torch.equal(x, y) for x, y in zip(a.unbind(), b.unbind()))
        return "" if same else f"{where}: ragged, {a} and {b}"
    if not kind_a:
        a, b = a.as_subclass(torch.Tensor), b.as_subclass(torch.Tensor)
        same = a.shape == b.shape and a.dtype == b.dtype and torch.equal(
            torch.view_as_real(a).nan_to_num() if a.is_complex() else a.nan_to_num(),
            torch.view_as_real(b).nan_to_num() if b.is_complex() else b.nan_to_num())
        return "" if same else f"{where}: {a} and {b}"
    if a.batch_size != b.batch_size:
        return f"{where} has batch size {a.batch_size} and {b.batch_size}"
    if kind_a == [NonTensorData]:
        return "" if repr(a.data) == repr(b.data) else f"{where}: {a.data!r} and {b.data!r}"
    if kind_a == [NonTensorStack]:
        return "" if repr(a.tolist()) == repr(b.tolist()) else f"{where}: {a.tolist()!r} and {b.tolist()!r}"
    if kind_a == [LazyStackedTensorDict]:
        if a.stack_dim != b.stack_dim:
            return f"{where} is stacked along {a.stack_dim} and {b.stack_dim}"
        return next(filter(None, (difference(x, y, f"{where}/{i}") for i, (x, y) in
                                  enumerate(zip(a.tensordicts, b.tensordicts)))), "")
    if set(a.keys()) != set(b.keys()):
        return f"{where} has {sorted(a.keys())} and {sorted(b.keys())}"
    return next(filter(None, (difference(a.get(k), b.get(k), f"{where}/{k}") for k in a.keys())), "")


def write(td, path):
    if path.suffix == ".td":
        td.consolidate(filename=str(path))
    elif path.suffix == ".safetensors":
        tensordict.to_safetensors(td, path)
    else:
        td.memmap(str(path))


def read(path):
    if path.suffix == ".td":
        return TensorDict.from_consolidated(str(path))
    if path.suffix == ".safetensors":
        return tensordict.from_safetensors(path)
    return tensordict.load_memmap(str(path))


def main():
    program, folder = sys.argv[1], pathlib.Path(sys.argv[2])
    seed, cases = int(sys.argv[3]), int(sys.argv[4])
    folder.mkdir(parents=True, exist_ok=True)
    weft = subprocess.Popen([program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def ask(*words):
        weft.stdin.write(" ".join(map(str, words)) + "\n")
        weft.stdin.flush()
        return weft.stdout.readline().strip()

    files = differences = 0
    compared = dict.fromkeys((".td", ".memmap", ".safetensors"), 0)

    def check(n, suffix, step, said):
        nonlocal differences
        if said and said != "ok":
            differences += 1
            print(f"seed {seed + n}, {suffix}, {step}: {said}")
        return not said or said == "ok"

    for n in range(cases):
        for suffix in (".td", ".memmap", ".safetensors"):
            td = Maker(seed + n, suffix == ".td").root(plain=suffix == ".safetensors")
            first, second, third, fourth = (folder / f"{n}-{i}{suffix}" for i in range(4))
            try:
                write(td, first)
                back = difference(td, read(first))
            except Exception as e:
                back = str(e)
            if back:  # Python does not read what it writes
                continue
            files += 1
            if not check(n, suffix, "weft reads and changes", ask("change", first, second)):
                continue
            try:
                expected = change(td)
                loaded = read(second)
            except Exception as e:
                check(n, suffix, "Python reads", f"{type(e).__name__}: {e}")
                continue
            if not check(n, suffix, "Python compares", difference(expected, loaded)):
                continue
            try:
                write(change(loaded), third)
            except Exception:  # Python does not write it: complex128 at 8 modulo 16, for example
                continue
            check(n, suffix, "weft changes again", ask("change", second, fourth))
            check(n, suffix, "weft compares", ask("compare", third, fourth))
            compared[suffix] += 1
    weft.stdin.close()
    weft.wait()
    print(f"{files} files, {differences} differences")
    skipped = [s for s, n in compared.items() if n < cases * 0.6]  # Python fails with a few
    if skipped:
        print(f"too few were compared: {compared}")
    return differences or skipped


if __name__ == "__main__":
    sys.exit(1 if main() else 0)
