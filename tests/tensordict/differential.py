# SPDX-License-Identifier: BSL-1.0
"""Random tensordicts and chains of operations, and what Python's tensordict makes of them.

    python differential.py <seed> <cases> > cases.jsonl

A case is a tensordict and a chain of operations, each with what it gives: a tensordict, all of it,
or that it is refused. The C++ test (replay.cpp) does the same and compares. What 0.15.3 does wrong is
left out, each time with a comment.
"""

import json
import operator
import random
import sys
import warnings

warnings.simplefilter("ignore")
import torch
from tensordict import LazyStackedTensorDict, NonTensorData, NonTensorStack, TensorDict

DTYPES = [torch.float32, torch.float32, torch.float64, torch.int64, torch.int32, torch.uint8,
          torch.bool, torch.bfloat16, torch.complex64]
KEYS = ["a", "b", "c", "obs", "next", "", "a.b", "x y"]


VALUES = ["text", "", 3, 2.5, True, [1, "x"], {"k": [None]}]


class Maker:
    def __init__(self, seed):
        self.random = random.Random(seed)
        self.rich = seed % 4 == 3  # with lazy stacks and data

    def values(self, shape, dtype):
        count = 1
        for n in shape:
            count *= n
        begin = self.random.randrange(-9, 9)
        flat = torch.arange(begin, begin + count) % 17
        if dtype == torch.bool:
            flat = flat % 2
        return flat.to(dtype).reshape(shape)

    def sizes(self, most=3):
        return [self.random.choice([1, 2, 2, 3, 3, 4, 0] if self.random.random() < 0.1 else [1, 2, 3])
                for _ in range(self.random.randrange(most))]

    def stack(self, batch, depth):
        """A lazy stack whose batch size begins with `batch`, stacked behind that."""
        inner = [*batch, *self.sizes(2)]
        dim = self.random.randrange(len(batch), len(inner) + 1)
        return LazyStackedTensorDict(*[self.fill(TensorDict({}, inner), depth + 1)
                                       for _ in range(self.random.randrange(1, 4))], stack_dim=dim)

    def fill(self, td, depth):
        for key in self.random.sample(KEYS, self.random.randrange(1, 4)):
            if self.rich and self.random.random() < 0.25:
                if self.random.random() < 0.5:
                    td.set(key, NonTensorData(self.random.choice(VALUES), batch_size=td.batch_size))
                elif depth < 2:
                    td.set(key, self.stack(list(td.batch_size), depth))
            elif depth < 2 and self.random.random() < 0.3:
                further = self.sizes(2) if self.random.random() < 0.4 else []
                nested = TensorDict({}, batch_size=[*td.batch_size, *further])
                self.fill(nested, depth + 1)
                td.set(key, nested)
            else:
                shape = [*td.batch_size, *self.sizes()]
                td.set(key, self.values(shape, self.random.choice(DTYPES)))
        return td

    def tensordict(self, batch=None):
        td = TensorDict({}, batch_size=self.sizes(4) if batch is None else batch)
        self.fill(td, 0)
        if not self.rich and self.random.random() < 0.2:
            td.names = [self.random.choice([None, f"d{i}"]) for i in range(td.batch_dims)]
        return td

    def key(self, td):
        """One that is there, mostly."""
        if self.random.random() < 0.15:
            return [self.random.choice(KEYS)]
        keys = list(td.keys(not self.rich))  # what is lazy here may be stacked there
        if not keys:
            return ["a"]
        key = self.random.choice(keys)
        return list(key) if isinstance(key, tuple) else [key]

    def dim(self, td, more=0):
        n = td.batch_dims + more
        return self.random.randrange(-n - 1, n + 2) if self.random.random() < 0.1 or n == 0 \
            else self.random.randrange(-n, n)

    def index(self, td):
        out = []
        dims = td.batch_dims
        left = dims
        ellipsis = False
        for _ in range(self.random.randrange(0, dims + 2)):
            kind = self.random.random()
            at = dims - left
            size = td.batch_size[at] if left > 0 and not ellipsis else 2
            if kind < 0.1:
                out.append({"none": True})
            elif kind < 0.2 and not ellipsis:
                out.append({"ellipsis": True})
                ellipsis = True
            elif left == 0:
                break
            elif kind < 0.5:
                out.append({"int": self.random.randrange(-size, size) if size else 0})
                left -= 1
            elif kind < 0.75:
                bounds = [self.random.choice([None, *range(-size, size + 1)]) for _ in range(2)]
                out.append({"slice": [*bounds, self.random.choice([None, 1, 1, 2])]})
                left -= 1
            elif kind < 0.9:
                out.append({"long": [self.random.randrange(size) for _ in range(
                    self.random.randrange(0, 4))] if size else []})
                left -= 1
            else:
                out.append({"mask": [self.random.random() < 0.5 for _ in range(size)]})
                left -= 1
        return out


def index_of(parts):
    out = []
    for p in parts:
        if "none" in p:
            out.append(None)
        elif "ellipsis" in p:
            out.append(...)
        elif "int" in p:
            out.append(p["int"])
        elif "slice" in p:
            out.append(slice(*p["slice"]))
        elif "long" in p:
            out.append(torch.tensor(p["long"], dtype=torch.int64))
        else:
            out.append(torch.tensor(p["mask"], dtype=torch.bool))
    return tuple(out)


def numbers(t):
    if t.is_complex():
        t = torch.view_as_real(t.resolve_conj())
    flat = t.reshape(-1)
    return [int(x) for x in flat.to(torch.float64 if t.is_floating_point() else torch.int64).tolist()]


def elements(value, batch):
    """Lists within lists: what each element of the batch has. 0.15.3 stacks in other places."""
    if not batch:
        return value.data if isinstance(value, NonTensorData) else written(value)
    return [elements(value[i], batch[1:]) for i in range(batch[0])]


def written(td, structure=False):
    """With `structure`, lazy stacks and data as they are; else what each element of them has."""
    if isinstance(td, NonTensorData) and structure:
        return {"data": td.data}
    if isinstance(td, LazyStackedTensorDict) and structure:
        return {"parts": [written(part, True) for part in td.tensordicts], "dim": td.stack_dim}
    if isinstance(td, (NonTensorData, LazyStackedTensorDict)):
        return {"batch": list(td.batch_size), "elements": elements(td, td.batch_size)}
    entries = []
    for key in td.keys():
        value = td.get(key)
        if isinstance(value, torch.Tensor):
            entries.append([key, {"dtype": str(value.dtype)[6:], "sizes": list(value.shape),
                                  "values": numbers(value)}])
        else:
            entries.append([key, written(value, structure)])
    names = ["" if n is None else n for n in td.names]
    return {"batch": list(td.batch_size), "names": names if any(names) else [], "entries": entries,
            "text": repr(td)}


def has_empty(td):
    return any(not isinstance(v, torch.Tensor) and (len(v.keys()) == 0 or has_empty(v))
               for v in td.values())


def is_whole(td):
    """0.15.3 makes some whose entries do not fit their batch size."""
    if isinstance(td, NonTensorData):
        return True
    if isinstance(td, LazyStackedTensorDict):
        return all(map(is_whole, td.tensordicts))
    return all(list(v.shape[:td.batch_dims]) == list(td.batch_size)
               and (isinstance(v, torch.Tensor) or is_whole(v))
               for v in map(td.get, td.keys()))


def drops_keys(td):
    """Whether parts of a lazy stack have different keys."""
    if isinstance(td, (torch.Tensor, NonTensorData, NonTensorStack)):
        return False
    if isinstance(td, LazyStackedTensorDict):
        keys = [set(part.keys()) for part in td.tensordicts]
        return any(k != keys[0] for k in keys) or any(map(drops_keys, td.tensordicts))
    return any(drops_keys(td.get(k)) for k in td.keys())


def key_of(parts):
    return parts[0] if len(parts) == 1 else tuple(parts)


def draw(make, td):
    """An operation, as it is written, and what does it."""
    r = make.random
    op = r.choice(RICH if make.rich else OPERATIONS)
    if make.rich and 0 in td.batch_size:
        return None  # 0.15.3 makes no stack of nothing
    a = {}
    if op == "reshape" and make.rich and drops_keys(td):
        return None  # 0.15.3 loses what not all parts have
    if op in ("view", "reshape"):
        shape = [-1]
        if r.random() < 0.7:
            n = td.numel()
            shape = r.choice([[n], [n, 1], [1, n], [-1, 1], [2, -1], [-1], list(td.batch_size)])
        a["sizes"] = shape
        return {"op": op, **a}, lambda: getattr(td, op)(*shape) if shape else getattr(td, op)([])
    if op == "expand":
        a["sizes"] = [*make.sizes(2), *[n if r.random() < 0.7 else r.choice([2, -1])
                                        for n in td.batch_size]]
        if make.rich and 0 in a["sizes"]:
            return None  # as above
        return {"op": op, **a}, lambda: td.expand(a["sizes"])
    if op == "permute":
        order = list(range(td.batch_dims))
        r.shuffle(order)
        a["sizes"] = order
        return {"op": op, **a}, lambda: td.permute(order)
    if op == "transpose":
        a["dims"] = [make.dim(td), make.dim(td)]
        return {"op": op, **a}, lambda: td.transpose(*a["dims"])
    if op == "unsqueeze":
        a["dims"] = [make.dim(td, 1)]
        return {"op": op, **a}, lambda: td.unsqueeze(a["dims"][0])
    if op == "squeeze":
        a["dims"] = [make.dim(td)] if r.random() < 0.7 else []
        if not a["dims"] and all(n == 1 for n in td.batch_size):
            return None  # 0.15.3: TypeError
        return {"op": op, **a}, lambda: td.squeeze(*a["dims"])
    if op == "flatten":
        a["dims"] = sorted([make.dim(td), make.dim(td)])
        if a["dims"][0] % max(1, td.batch_dims) == a["dims"][1] % max(1, td.batch_dims):
            return None  # 0.15.3 forgets the names
        if not all(-max(1, td.batch_dims) <= d < max(1, td.batch_dims) for d in a["dims"]):
            return None  # 0.15.3 takes some that do not exist
        return {"op": op, **a}, lambda: td.flatten(*a["dims"])
    if op in ("unbind", "split", "chunk"):
        a["dims"] = [make.dim(td)]
        a["which"] = r.randrange(3)
        a["size"] = r.randrange(1, 4)
        if op == "unbind":
            f = lambda: td.unbind(a["dims"][0])
        else:
            f = lambda: getattr(td, op)(a["size"], a["dims"][0])
        def one():
            parts = f()
            return parts[a["which"] % len(parts)] if parts else TensorDict({}, [])
        return {"op": op, **a}, one
    if op == "index":
        a["index"] = make.index(td)
        if td.is_empty() or any(v.numel() == 0 for v in td.values(True, True)
                                if isinstance(v, torch.Tensor)):
            return None  # 0.15.3 checks no index then
        return {"op": op, **a}, lambda: td[index_of(a["index"])]
    if op == "put":
        a["index"] = make.index(td)
        if td.is_empty():
            return None  # 0.15.3 checks no index then
        def put():
            out = td.clone()
            out[index_of(a["index"])] = td[index_of(a["index"])] * 0
            return out
        return {"op": op, **a}, put
    if op in ("stack", "cat"):
        a["dims"] = [make.dim(td, 1 if op == "stack" else 0)]
        n = td.batch_dims + (op == "stack")
        if td.is_empty() or not -n <= a["dims"][0] < n:  # 0.15.3 takes some that do not exist
            return None
        return {"op": op, **a}, lambda: getattr(torch, op)([td, td], a["dims"][0])
    if op in ("select", "exclude"):
        keys = [make.key(td) for _ in range(r.randrange(1, 3))]
        if len(keys) == 2 and keys[0][:len(keys[1])] == keys[1][:len(keys[0])]:
            keys.pop()  # select(("b", "c"), "b") leaves out the rest of b in 0.15.3
        a["keys"] = keys
        return {"op": op, **a}, lambda: getattr(td, op)(*map(key_of, keys))
    if op in ("flatten_keys", "unflatten_keys"):
        return {"op": op}, lambda: getattr(td, op)(".")
    if op == "rename":
        a["keys"] = [make.key(td), [r.choice(KEYS)]]
        return {"op": op, **a}, lambda: td.clone().rename_key_(*map(key_of, a["keys"]))
    if op == "erase":
        a["keys"] = [make.key(td)]
        return {"op": op, **a}, lambda: td.clone().del_(key_of(a["keys"][0]))
    if op == "set":
        a["keys"] = [make.key(td)]
        batch = list(td.batch_size)
        a["sizes"] = [*batch, 2] if r.random() < 0.8 else make.sizes()
        return {"op": op, **a}, lambda: td.clone().set(key_of(a["keys"][0]), torch.ones(a["sizes"]))
    if op == "set_":
        a["keys"] = [make.key(td)]
        a["sizes"] = r.choice([[], [1], [2], list(td.batch_size)])
        if 0 in td.batch_size:
            return None  # 0.15.3 checks nothing then
        return {"op": op, **a}, lambda: td.clone().set_(key_of(a["keys"][0]), torch.ones(a["sizes"]))
    if op == "update":
        other = make.fill(TensorDict({}, batch_size=list(td.batch_size)), 0)
        a["other"] = written(other, True)
        return {"op": op, **a}, lambda: td.clone().update(other.clone())
    if op == "double":
        return {"op": op}, lambda: td.to(torch.float64)
    if op == "empty":
        return {"op": op}, lambda: td.empty(recurse=True)
    if op == "batch_size":
        a["sizes"] = r.choice([list(td.batch_size)[:-1], [*td.batch_size, 2], list(td.batch_size)])
        def change():
            out = td.clone()
            out.batch_size = a["sizes"]
            return out
        return {"op": op, **a}, change
    if op in ("add", "sub", "mul", "eq", "lt"):
        kind = r.choice(["self", "other", "number"] + (["tensor"] if op in ("add", "mul") else []))
        a["kind"] = kind
        if has_empty(td) or td.is_empty() or (op in ("eq", "lt") and any(td.names)):
            return None  # 0.15.3 leaves empty ones out, and names of what it compares
        apply = getattr(operator, op)
        if kind == "self":
            return {"op": op, **a}, lambda: apply(td, td)
        if kind == "other" and make.rich:
            return None  # 0.15.3 looks for no key of data alone
        if kind == "other":
            other = make.fill(TensorDict({}, batch_size=list(td.batch_size)), 0)
            if op in ("eq", "lt") and set(td.keys(True, True)) != set(other.keys(True, True)):
                return None  # 0.15.3 compares a tensor with a tensordict
            a["other"] = written(other, True)
            return {"op": op, **a}, lambda: apply(td, other)
        if kind == "number":
            a["number"] = r.randrange(-2, 3)
            return {"op": op, **a}, lambda: apply(td, a["number"])
        a["sizes"] = r.choice([list(td.batch_size), [1] * td.batch_dims, list(td.batch_size)[1:]])
        if not a["sizes"]:
            return None  # 0.15.3 makes a number of it, and int64 of bool
        return {"op": op, **a}, lambda: apply(td, torch.ones(a["sizes"], dtype=torch.int32) * 2)
    if op in ("sum", "any", "all"):
        a["dims"] = [make.dim(td)]
        return {"op": op, **a}, lambda: getattr(td, op)(dim=a["dims"][0])
    if op in ("masked_fill", "masked_select", "where"):
        if any(t.dtype == torch.bool for t in td.values(True, True) if isinstance(t, torch.Tensor)) \
                and op == "masked_fill":
            return None
        if op == "masked_select" and any(td.names):
            return None  # 0.15.3 forgets the names, which td[mask] keeps
        a["mask"] = [r.random() < 0.5 for _ in range(td.numel() if 0 not in td.batch_size else 0)]
        mask = torch.tensor(a["mask"], dtype=torch.bool).reshape(td.batch_size)
        if op == "masked_fill":
            return {"op": op, **a}, lambda: td.masked_fill(mask, 3)
        if op == "where":
            return {"op": op, **a}, lambda: td.where(mask, td.clone().zero_())
        return {"op": op, **a}, lambda: td.masked_select(mask)
    raise AssertionError(op)


OPERATIONS = ["view", "reshape", "expand", "permute", "transpose", "unsqueeze", "squeeze", "flatten",
              "unbind", "split", "chunk", "index", "index", "index", "put", "stack", "cat", "select",
              "exclude", "flatten_keys", "unflatten_keys", "rename", "erase", "set", "set_", "update",
              "double", "empty", "batch_size", "add", "sub", "mul", "eq", "lt", "sum", "any", "all",
              "masked_fill", "masked_select", "where"]


RICH = ["reshape", "expand", "unsqueeze", "unbind", "split", "chunk", "index", "index", "index",
        "stack", "cat", "select", "exclude", "rename", "erase", "set", "double", "add"]


def case(seed):
    make = Maker(seed)
    td = make.tensordict()
    try:
        out = {"seed": seed, "from": written(td, True), "chain": []}
        if make.rich:
            out["rich"] = True
    except Exception:
        return None  # 0.15.3 prints no lazy stack with a tensor here and a tensordict there
    for _ in range(make.random.randrange(1, 6)):
        try:
            drawn = draw(make, td)
        except Exception:
            if not make.rich:
                raise
            continue  # as above
        if drawn is None:
            continue
        step, does = drawn
        try:
            new = does()
        except Exception as e:  # what is refused
            if make.rich and "Failed to stack" in str(e):
                continue  # weft keeps it lazy
            step["refused"] = type(e).__name__ + ": " + str(e)[:100]
            out["chain"].append(step)
            continue
        try:
            if not is_whole(new):
                continue
            step["gives"] = written(new)
        except Exception:
            if not make.rich:
                raise
            continue  # as above
        td = new
        out["chain"].append(step)
    return out


def main():
    seed, cases = int(sys.argv[1]), int(sys.argv[2])
    for n in range(cases):
        if (made := case(seed + n)) is not None:
            print(json.dumps(made, separators=(",", ":")))


if __name__ == "__main__":
    main()
