"""Makes an environment of conda's kind with rattler, the library that pixi is built on.

usage: conda_environment.py PREFIX SITE_PACKAGES

From a channel of its own it installs one package, which brings scripts and variables for the
activation. The Python in it is a venv's, and finds ipykernel in SITE_PACKAGES: no channel with a
Python of conda's own can be reached everywhere. Prints what rattler's own activation of it is.
"""

import asyncio
import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

import rattler
from rattler.shell import ActivationVariables, Shell, activate

FILES = {
    "etc/conda/activate.d/data.sh": 'export NB_TEST_DATA="$CONDA_PREFIX/share/data"\n'
    'export NB_TEST_BACKUP="${NB_TEST_VALUE-none}"\n',
    "etc/conda/activate.d/z-last.sh": 'export NB_TEST_LAST="$NB_TEST_DATA of $CONDA_DEFAULT_ENV"\n',
    "etc/conda/env_vars.d/package.json": '{"NB_TEST_PACKAGE": "1"}',
    "share/data": "data\n",
}


def package(channel):
    """Writes a channel with one package; returns nothing, since a solver finds it."""
    index = {
        "name": "nb-test-data",
        "version": "1.0",
        "build": "0",
        "build_number": 0,
        "depends": [],
        "subdir": "noarch",
        "noarch": "generic",
    }
    paths = [
        {
            "_path": name,
            "path_type": "hardlink",
            "sha256": hashlib.sha256(text.encode()).hexdigest(),
            "size_in_bytes": len(text),
        }
        for name, text in FILES.items()
    ]
    info = {
        "info/index.json": json.dumps(index),
        "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}),
        "info/files": "\n".join(FILES) + "\n",
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:bz2") as tar:
        for name, text in {**info, **FILES}.items():
            member = tarfile.TarInfo(name)
            member.size = len(text)
            tar.addfile(member, io.BytesIO(text.encode()))
    name = "nb-test-data-1.0-0.tar.bz2"
    record = {
        **index,
        "md5": hashlib.md5(packed.getvalue()).hexdigest(),
        "sha256": hashlib.sha256(packed.getvalue()).hexdigest(),
        "size": len(packed.getvalue()),
    }
    for subdir, packages in [("noarch", {name: record}), ("linux-64", {})]:
        folder = channel / subdir
        folder.mkdir(parents=True)
        data = {"info": {"subdir": subdir}, "packages": packages, "packages.conda": {}}
        (folder / "repodata.json").write_text(json.dumps(data))
    (channel / "noarch" / name).write_bytes(packed.getvalue())


async def main(prefix, site_packages):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    [own] = prefix.glob("lib/python3*/site-packages")
    (own / "tests.pth").write_text(f"{site_packages}\n")
    with tempfile.TemporaryDirectory() as temp:
        channel = Path(temp) / "channel"
        package(channel)
        records = await rattler.solve(
            sources=[channel.as_uri()],
            specs=["nb-test-data"],
            platforms=["noarch", "linux-64"],
            gateway=rattler.Gateway(cache_dir=Path(temp) / "repodata"),
        )
        await rattler.install(
            records, target_prefix=prefix, cache_dir=Path(temp) / "packages", show_progress=False
        )
    result = activate(prefix, ActivationVariables(current_path=["/usr/bin", "/bin"]), Shell.bash)
    print(result.script)


asyncio.run(main(Path(sys.argv[1]), sys.argv[2]))
