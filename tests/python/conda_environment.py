"""Makes an environment of conda's kind with rattler, the library that pixi is built on.

usage: conda_environment.py PREFIX SITE_PACKAGES

From a channel of its own it installs one package, which brings scripts and variables for the
activation. The Python in it is a venv's, and finds ipykernel in SITE_PACKAGES: no channel with a
Python of conda's own can be reached everywhere. Prints what rattler's own activation of it is.
"""

import asyncio
import subprocess
import sys
import tempfile
from pathlib import Path

import conda_channel
import rattler
from rattler.shell import ActivationVariables, Shell, activate


async def main(prefix, site_packages):
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", prefix], check=True)
    [own] = prefix.glob("lib/python3*/site-packages")
    (own / "tests.pth").write_text(f"{site_packages}\n")
    with tempfile.TemporaryDirectory() as temp:
        channel = Path(temp) / "channel"
        conda_channel.write(channel, {"nb-test-data": conda_channel.DATA})
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
