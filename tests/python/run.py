# SPDX-License-Identifier: BSL-1.0
"""Python with PyTorch and tensordict, which the tests compare weft with: `./dev python`.

    python run.py <folder for packages> <python's arguments>

The interpreter is that of libtorch's own environment (build/deps). Packages are put into a folder
beside it, so that environment stays as it was. Where PyTorch's Python module lacks CUDA's
libraries, stand-ins take their places (tests/process/torchrun.py). WEFT_TENSORDICT=VERSION takes
another version of tensordict, "newest" the newest that installs.
"""

import fcntl
import hashlib
import os
import pathlib
import shutil
import subprocess
import sys

here = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(here.parent / "process"))
import torchrun  # noqa: E402

KEPT = "0.15.3"


def install(folder, version):
    """The folder of packages with that version of tensordict."""
    requirements = (here / "requirements.txt").read_text()
    wanted = "tensordict" if version == "newest" else f"tensordict=={version}"
    name = hashlib.sha256((requirements + wanted).encode()).hexdigest()[:12]
    packages = folder / f"{version}-{name}"
    if (packages / "complete").exists():
        return packages
    shutil.rmtree(packages, ignore_errors=True)
    print(f"weft: installing {wanted} and what it needs, for tests", file=sys.stderr)
    subprocess.run([sys.executable, "-m", "pip", "install", "--quiet", "--no-deps",
                    "--disable-pip-version-check", "--target", str(packages), wanted,
                    "-r", str(here / "requirements.txt")], check=True, stdout=sys.stderr)
    (packages / "complete").touch()
    return packages


def stand_ins(folder):
    """A folder for LD_LIBRARY_PATH; None if PyTorch loads without."""
    made = folder / "stand-ins"
    if (made / "complete").exists():
        return made
    loads = [sys.executable, "-c", "import torch"]
    if subprocess.run(loads, capture_output=True, check=False).returncode == 0:
        return None
    torchrun.make_stand_ins(made)
    (made / "complete").touch()
    return made


def main():
    folder, arguments = pathlib.Path(sys.argv[1]).resolve(), sys.argv[2:]
    folder.mkdir(parents=True, exist_ok=True)
    with open(folder / "lock", "w") as lock:  # let go of with this process, or by exec
        fcntl.flock(lock, fcntl.LOCK_EX)
        packages = install(folder, os.environ.get("WEFT_TENSORDICT", KEPT))
        libraries = stand_ins(folder)
    environment = dict(os.environ)
    before = [environment["PYTHONPATH"]] if environment.get("PYTHONPATH") else []
    environment["PYTHONPATH"] = os.pathsep.join([str(packages), *before])
    if libraries:
        before = [environment["LD_LIBRARY_PATH"]] if environment.get("LD_LIBRARY_PATH") else []
        environment["LD_LIBRARY_PATH"] = os.pathsep.join([str(libraries), *before])
    os.execve(sys.executable, [sys.executable, *arguments], environment)


if __name__ == "__main__":
    main()
