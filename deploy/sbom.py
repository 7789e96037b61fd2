#!/usr/bin/env python3
"""Writes what programs are linked with as an SBOM: SPDX 2.3, JSON.

Usage: sbom.py VERSION PROGRAM... Every shared library that the dynamic linker loads for a program
is named with the Debian or Ubuntu package that it is from, and that package's exact version; so are
packages of libraries that are headers only. SOURCE_DATE_EPOCH: the time that stands in it.

Covered by tests/house/packages_test.py.
"""

import datetime
import json
import os
import re
import subprocess
import sys
import uuid
from pathlib import Path

HEADERS_ONLY = ["libcli11-dev", "nlohmann-json3-dev"]
FIELDS = "${Package}\t${Version}\t${Architecture}\t${source:Package}\t${source:Version}\n"


def run(*command):
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


def packages_of(program):
    """Names of the packages whose libraries the dynamic linker loads for `program`."""
    found = set()
    for path in re.findall(r"=> (/\S+)", run("ldd", program)):
        # The same file has several names where /lib is a link to /usr/lib.
        names = sorted({path, f"/usr{path}", str(Path(path).resolve())})
        done = subprocess.run(["dpkg-query", "-S", *names], capture_output=True, text=True,
                              check=False)  # fmt: skip
        if not done.stdout:
            raise SystemExit(f"sbom.py: {program} loads {path}, which is of no package")
        found.update(line.split(":")[0] for line in done.stdout.splitlines())
    return found


def distribution():
    for line in Path("/etc/os-release").read_text().splitlines():
        if line.startswith("ID="):
            return line.split("=")[1].strip('"')
    return "debian"


def element(line):
    """An SPDX package from a line of FIELDS."""
    name, version, architecture, source, source_version = line.split("\t")
    locator = f"pkg:deb/{distribution()}/{name}@{version}?arch={architecture}"
    return {
        "SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name),
        "name": name,
        "versionInfo": version,
        "sourceInfo": f"built from {source} {source_version}",
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "NOASSERTION",
        "copyrightText": "NOASSERTION",
        "externalRefs": [{
            "referenceCategory": "PACKAGE-MANAGER",
            "referenceType": "purl",
            "referenceLocator": locator.replace("+", "%2B"),
        }],
    }  # fmt: skip


def document(version, programs):
    names = set(HEADERS_ONLY).union(*(packages_of(program) for program in programs))
    lines = run("dpkg-query", "-W", f"-f={FIELDS}", *sorted(names)).splitlines()
    packages = [element(line) for line in sorted(set(lines))]
    made = datetime.datetime.fromtimestamp(
        int(os.environ.get("SOURCE_DATE_EPOCH", "0")), datetime.timezone.utc
    )
    digest = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps([version, packages], sort_keys=True))
    embla = {
        "SPDXID": "SPDXRef-embla",
        "name": "embla",
        "versionInfo": version,
        "downloadLocation": "NOASSERTION",
        "filesAnalyzed": False,
        "licenseConcluded": "Apache-2.0",
        "licenseDeclared": "Apache-2.0",
        "copyrightText": "NOASSERTION",
    }
    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", "SPDXRef-embla")]
    for package in packages:
        kind = "DEPENDS_ON" if package["name"] in HEADERS_ONLY else "DYNAMIC_LINK"
        relations.append(("SPDXRef-embla", kind, package["SPDXID"]))
    return {
        "spdxVersion": "SPDX-2.3",
        "dataLicense": "CC0-1.0",
        "SPDXID": "SPDXRef-DOCUMENT",
        "name": f"embla-{version}",
        "documentNamespace": f"https://spdx.org/spdxdocs/embla-{digest}",
        "creationInfo": {"created": f"{made:%Y-%m-%dT%H:%M:%SZ}", "creators": ["Tool: sbom.py"]},
        "packages": [embla, *packages],
        "relationships": [
            {"spdxElementId": a, "relationshipType": kind, "relatedSpdxElement": b}
            for a, kind, b in relations
        ],
    }


def main():
    print(json.dumps(document(sys.argv[1], sys.argv[2:]), indent=1))
    return 0


if __name__ == "__main__":
    sys.exit(main())
