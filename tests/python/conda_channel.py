"""A channel in conda's format in a folder, with packages of a few files each.

usage: conda_channel.py CHANNEL PYTHON SITE_PACKAGES

Writes a channel with a Python (a venv of PYTHON, since conda's own packages are not available
everywhere), an ipykernel for it (which finds its modules in SITE_PACKAGES), and a package with scripts
and variables for the activation.
"""

import hashlib
import io
import json
import subprocess
import sys
import tarfile
import tempfile
from pathlib import Path

# A package whose scripts and variables take effect when its environment is activated.
DATA = {
    "etc/conda/activate.d/data.sh": 'export NB_TEST_DATA="$CONDA_PREFIX/share/data"\n'
    'export NB_TEST_BACKUP="${NB_TEST_VALUE-none}"\n',
    "etc/conda/activate.d/z-last.sh": 'export NB_TEST_LAST="$NB_TEST_DATA of $CONDA_DEFAULT_ENV"\n',
    "etc/conda/env_vars.d/package.json": '{"NB_TEST_PACKAGE": "1"}',
    "share/data": "data\n",
}


def pack(name, version, files):
    """Returns a package's file name, its record in a channel, and its contents.

    A file is given as its text, or as the Path to which a symlink points.
    """
    index = {
        "name": name,
        "version": version,
        "build": "0",
        "build_number": 0,
        "depends": [],
        "subdir": "noarch",
        "noarch": "generic",
    }
    paths = [
        {
            "_path": file,
            "path_type": "softlink" if isinstance(text, Path) else "hardlink",
            "sha256": hashlib.sha256(str(text).encode()).hexdigest(),
            "size_in_bytes": len(str(text)),
        }
        for file, text in files.items()
    ]
    info = {
        "info/index.json": json.dumps(index),
        "info/paths.json": json.dumps({"paths": paths, "paths_version": 1}),
        "info/files": "\n".join(files) + "\n",
    }
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w:bz2") as tar:
        for file, text in {**info, **files}.items():
            member = tarfile.TarInfo(file)
            if isinstance(text, Path):
                member.type, member.linkname = tarfile.SYMTYPE, str(text)
                tar.addfile(member)
            else:
                member.size = len(text)
                tar.addfile(member, io.BytesIO(text.encode()))
    contents = packed.getvalue()
    record = {
        **index,
        "md5": hashlib.md5(contents).hexdigest(),
        "sha256": hashlib.sha256(contents).hexdigest(),
        "size": len(contents),
    }
    return f"{name}-{version}-0.tar.bz2", record, contents


def write(channel, packages, versions=None):
    """Writes a channel; `packages` has their files by name."""
    records = {}
    for subdir in ["noarch", "linux-64", "linux-aarch64", "osx-64", "osx-arm64"]:
        (channel / subdir).mkdir(parents=True)
    for name, files in packages.items():
        file, records[file], contents = pack(name, (versions or {}).get(name, "1.0"), files)
        (channel / "noarch" / file).write_bytes(contents)
    for folder in channel.iterdir():
        own = records if folder.name == "noarch" else {}
        data = {"info": {"subdir": folder.name}, "packages": own, "packages.conda": {}}
        (folder / "repodata.json").write_text(json.dumps(data))


def main(channel, python, site_packages):
    with tempfile.TemporaryDirectory() as temp:
        subprocess.run([python, "-m", "venv", "--without-pip", temp], check=True)
        settings = (Path(temp) / "pyvenv.cfg").read_text()
        [own] = Path(temp).glob("lib/python3*")
    real = Path(python).resolve()
    files = {
        "pyvenv.cfg": settings,
        f"bin/{own.name}": real,
        "bin/python3": Path(own.name),
        "bin/python": Path(own.name),
    }
    lent = {f"lib/{own.name}/site-packages/tests.pth": f"{site_packages}\n"}
    packages = {
        "python": files,
        "ipykernel": lent,
        # conda and its relatives install pip beside every Python.
        "pip": {"share/pip": "none\n"},
        "nb-test-data": DATA,
    }
    write(channel, packages, {"python": own.name.removeprefix("python")})


if __name__ == "__main__":
    main(Path(sys.argv[1]), *sys.argv[2:])
