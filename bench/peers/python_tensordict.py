# SPDX-License-Identifier: BSL-1.0
"""Python's tensordict in the rows tensordict.*: figures as JSON, in microseconds.

    ./dev python bench/peers/python_tensordict.py
"""

import json
import statistics
import time

import torch
from tensordict import TensorDict

torch.set_num_threads(1)
LEAVES = 100


def median(f, seconds=0.4):
    times = []
    began = time.perf_counter()
    while time.perf_counter() - began < seconds or len(times) < 5:
        start = time.perf_counter()
        f()
        times.append((time.perf_counter() - start) * 1e6)
    return statistics.median(times)


def main():
    td = TensorDict({f"entry{i}": torch.rand(32, 4) for i in range(LEAVES)}, [32])
    several = [td.clone() for _ in range(8)]
    nested = TensorDict({"a": {"b": torch.rand(32, 4)}}, [32])
    value = torch.rand(32, 4)
    large = TensorDict({f"entry{i}": torch.rand(1 << 18) for i in range(LEAVES)}, [])
    small = TensorDict({f"entry{i}": torch.rand(256) for i in range(LEAVES)}, [])
    torch.set_num_threads(2)
    consolidate = median(large.consolidate, 1.5)
    torch.set_num_threads(1)
    print(json.dumps({
        "index": median(lambda: td[:16]),
        "apply": median(lambda: td.apply(lambda t: t + 1)),
        "stack": median(lambda: torch.stack(several)),
        "get": median(lambda: nested["a", "b"]),
        "set": median(lambda: nested.set(("a", "b"), value)),
        "consolidate": consolidate,
        "consolidate_small": median(small.consolidate),
    }))


if __name__ == "__main__":
    main()
