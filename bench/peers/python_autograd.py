# SPDX-License-Identifier: BSL-1.0
"""Table 2 of the paper with PyTorch RPC: two linear layers of 1000 x 1000, one of them remote.
Both processes are on the core that this one may use. Prints medians in microseconds as JSON."""

import json
import os
import statistics
import subprocess
import sys
import time
import warnings

warnings.simplefilter("ignore")
import torch  # noqa: E402
import torch.distributed.autograd as dist_autograd  # noqa: E402
import torch.distributed.rpc as rpc  # noqa: E402

torch.set_num_threads(1)
WIDTH = 1000
layer = torch.nn.Linear(WIDTH, WIDTH)


def forward(x):
    return layer(x)


def one_thread():
    torch.set_num_threads(1)


def measure(batch):
    first, second, other, another = (torch.nn.Linear(WIDTH, WIDTH) for _ in range(4))
    x = torch.ones(batch, WIDTH)
    times = {}

    def timed(column, work):
        began = time.perf_counter()
        out = work()
        times.setdefault(column, []).append((time.perf_counter() - began) * 1e6)
        return out

    # Before each column, so that all find their layers, and memory for gradients, in no cache.
    def between_columns():
        another(other(x)).sum().backward()
        first.zero_grad()  # the others' gradients stay, and add up
        second.zero_grad()

    def unrecorded():
        with torch.no_grad():
            timed("nograd_fwd", lambda: rpc.rpc_sync("b", forward, args=(first(x),)).sum())

    def recorded():
        with dist_autograd.context() as context:
            y = timed("grad_fwd", lambda: rpc.rpc_sync("b", forward, args=(first(x),)).sum())
            timed("grad_bwd", lambda: dist_autograd.backward(context, [y]))

    until = time.perf_counter() + 4
    number = 0
    while time.perf_counter() < until:
        between_columns()
        loss = timed("norpc_fwd", lambda: second(first(x)).sum())
        timed("norpc_bwd", loss.backward)
        number += 1
        for work in (unrecorded, recorded) if number % 2 else (recorded, unrecorded):
            between_columns()  # each first, in turns
            work()
    out = {name: statistics.median(all[len(all) // 5:]) for name, all in times.items()}
    out["fwd_cost"] = out["grad_fwd"] - out["nograd_fwd"]
    out["bwd_cost"] = (out["grad_bwd"] - out["norpc_bwd"]
                       - (out["nograd_fwd"] - out["norpc_fwd"]))
    return {f"b{batch}_{name}": value for name, value in out.items()}


def main():
    rank = int(sys.argv[1]) if len(sys.argv) > 1 else 0
    if "MALLOC_MMAP_THRESHOLD_" not in os.environ:  # freed memory is kept, as in weft's rows
        os.environ["MALLOC_MMAP_THRESHOLD_"] = os.environ["MALLOC_TRIM_THRESHOLD_"] = str(1 << 30)
        os.execv(sys.executable, [sys.executable, *sys.argv])
    os.environ["MASTER_ADDR"] = "127.0.0.1"
    if rank == 0:
        import socket
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            os.environ["MASTER_PORT"] = str(free.getsockname()[1])
        other = subprocess.Popen([sys.executable, __file__, "1"], stdout=subprocess.DEVNULL)
    options = rpc.TensorPipeRpcBackendOptions(num_worker_threads=4)
    rpc.init_rpc("ab"[rank], rank=rank, world_size=2, rpc_backend_options=options)
    figures = {}
    if rank == 0:
        for batch in (1, 8, 32):
            figures.update(measure(batch))
    rpc.shutdown()
    if rank == 0:
        other.wait()
        print(json.dumps(figures))


main()
