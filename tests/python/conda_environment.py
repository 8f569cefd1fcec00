"""Makes an environment in conda's format with rattler, the library on which pixi is built.

usage: conda_environment.py PREFIX SITE_PACKAGES

It installs one package from its own channel, with scripts and variables for the activation. The
environment's Python is a venv's, and finds ipykernel in SITE_PACKAGES: a channel with conda's own Python
cannot be reached everywhere. Prints rattler's own activation of the environment.
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
