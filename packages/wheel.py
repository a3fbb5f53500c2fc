"""Makes a Python wheel of the program: `pipx run adk-bridge`.

A wheel is a zip archive with a list of its files; no Python runs in this one, so it fits every Python 3.

usage: wheel.py BINARY VERSION PLATFORM DIRECTORY README LICENSE...
PLATFORM is that of Node.js (linux-x64, darwin-arm64, win32-x64); prints the wheel's path. ADK_BRIDGE_REPOSITORY is the address of the
sources, if there is one.
"""

import base64
import hashlib
import json
import os
import re
import sys
import zipfile
from pathlib import Path

# The same time in every wheel, so that the same content is the same file.
TIME = (2020, 1, 1, 0, 0, 0)
MACHINES = {"x64": "x86_64", "arm64": "aarch64"}
# The oldest system that Rust's targets run on.
MACOS = {"x64": "macosx_10_12_x86_64", "arm64": "macosx_11_0_arm64"}
# What no program lacks that was built for the GNU C library.
OLDEST_GLIBC = (2, 17)


def main(binary, version, platform, directory, readme, *licenses):
    program = Path(binary).read_bytes()
    system, arch = platform.split("-")
    tag = f"py3-none-{platform_tag(system, arch, program)}"
    info = f"adk_bridge-{version}.dist-info"
    name = "adk-bridge.exe" if system == "win32" else "adk-bridge"
    repository = os.environ.get("ADK_BRIDGE_REPOSITORY")
    npm = json.loads((Path(__file__).parent / "npm/package.json").read_text())
    metadata = "\n".join(
        [
            "Metadata-Version: 2.4",
            "Name: adk-bridge",
            f"Version: {version}",
            f"Summary: {npm['description']}",
            "License-Expression: Apache-2.0",
            *(f"License-File: {Path(path).name}" for path in licenses),
            *([f"Project-URL: Source, {repository}"] if repository else []),
            f"Keywords: {','.join(npm['keywords'])}",
            "Requires-Python: >=3.8",
            "Description-Content-Type: text/markdown",
            "",
            Path(readme).read_text(),
        ]
    )
    wheel = f"Wheel-Version: 1.0\nGenerator: adk-bridge\nRoot-Is-Purelib: false\nTag: {tag}\n"
    files = {f"adk_bridge-{version}.data/scripts/{name}": program}
    for path in licenses:
        files[f"{info}/licenses/{Path(path).name}"] = Path(path).read_bytes()
    files[f"{info}/METADATA"] = metadata.encode()
    files[f"{info}/WHEEL"] = wheel.encode()
    record = "".join(f"{path},{digest(content)},{len(content)}\n" for path, content in files.items())
    files[f"{info}/RECORD"] = f"{record}{info}/RECORD,,\n".encode()
    target = Path(directory) / f"adk_bridge-{version}-{tag}.whl"
    with zipfile.ZipFile(target, "w", zipfile.ZIP_DEFLATED) as archive:
        for path, content in files.items():
            entry = zipfile.ZipInfo(path, TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if "/scripts/" in path else 0o100644) << 16
            archive.writestr(entry, content)
    print(target)


def platform_tag(system, arch, program):
    if system == "darwin":
        return MACOS[arch]
    if system == "win32":
        return {"x64": "win_amd64"}[arch]
    # The newest symbol of the C library that it asks for says which systems can run it.
    versions = [tuple(map(int, found)) for found in re.findall(rb"GLIBC_(\d+)\.(\d+)", program)]
    if not versions:
        return f"musllinux_1_1_{MACHINES[arch]}"
    major, minor = max(OLDEST_GLIBC, *versions)
    return f"manylinux_{major}_{minor}_{MACHINES[arch]}"


def digest(content):
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()


if __name__ == "__main__":
    if len(sys.argv) < 7:
        sys.exit(__doc__)
    main(*sys.argv[1:])
