#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""The SBOM of a release, as SPDX 2.3 JSON.

sbom.py LINKED TARBALL [URL]         prints it: LINKED is linked.json, which CMake writes into the build folder; the time is that of
                                     SOURCE_DATE_EPOCH
sbom.py --check SBOM [BINARY...]     status 1 if the SBOM breaks a rule of SPDX 2.3, or lacks a library of a binary (readelf)
"""
import datetime
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys

# Licenses, which pkg-config does not know.
LICENSES = {"libcjson": "MIT", "libzip": "BSD-3-Clause", "libpng": "libpng-2.0", "glibc": "LGPL-2.1-or-later"}
# The parts of libc are one package; their names differ from system to system.
LIBC = ["c", "m", "pthread"]
OURS = "The libattn authors"


def package(name, purpose, **more):
    entry = {"SPDXID": "SPDXRef-" + re.sub(r"[^A-Za-z0-9.-]", "-", name), "name": name, "primaryPackagePurpose": purpose,
             "downloadLocation": "NOASSERTION", "filesAnalyzed": False, "licenseConcluded": "NOASSERTION",
             "licenseDeclared": "NOASSERTION", "copyrightText": "NOASSERTION"}
    entry.update(more)
    return entry


def dependency(name, version, libraries):
    more = {"versionInfo": version, "externalRefs": [{"referenceCategory": "PACKAGE-MANAGER", "referenceType": "purl",
                                                     "referenceLocator": f"pkg:generic/{name}@{version}"}]} if version else {}
    return package(name, "LIBRARY", licenseDeclared=LICENSES.get(name, "NOASSERTION"),
                   comment="linked as: " + " ".join(libraries), **more)


def libc():
    words = subprocess.run(["getconf", "GNU_LIBC_VERSION"], capture_output=True, text=True, check=False).stdout.split()
    return dependency(words[0], words[1], LIBC) if len(words) == 2 else dependency("libc", None, LIBC)


def sbom(linked, tarball, url):
    version, digest = linked["version"], hashlib.sha256(tarball.read_bytes()).hexdigest()
    # The example tensors are third-party work (Apache-2.0) and are not installed.
    source = package(linked["name"] + "-source", "SOURCE", versionInfo=version, packageFileName=tarball.name, downloadLocation=url,
                     licenseDeclared="MIT AND Apache-2.0", checksums=[{"algorithm": "SHA256", "checksumValue": digest}],
                     copyrightText=OURS, supplier="Organization: " + OURS)
    others = {name: dependency(name, found["version"], found["libraries"]) for name, found in linked["modules"].items()}
    others["libc"] = libc()
    binaries = {}  # name: (package, its dependencies)
    for name, library in linked["libraries"].items():
        file = "libattn" if name == "core" else "libattn_" + name
        needs = [binaries[need][0] for need in library["needs"]]
        binaries[name] = package(file, "LIBRARY"), needs + [others[one] for one in library["modules"]] + [others["libc"]]
    if "command" in linked:
        needs = [entry for entry, _ in binaries.values()]
        binaries["command"] = package("attn", "APPLICATION"), needs + [others[one] for one in linked["command"]] + [others["libc"]]

    relations = [("SPDXRef-DOCUMENT", "DESCRIBES", source["SPDXID"])]
    for entry, needs in binaries.values():
        entry.update(versionInfo=version, licenseDeclared="MIT", copyrightText=OURS, supplier="Organization: " + OURS)
        relations += [("SPDXRef-DOCUMENT", "DESCRIBES", entry["SPDXID"]), (entry["SPDXID"], "GENERATED_FROM", source["SPDXID"])]
        relations += [(entry["SPDXID"], "DEPENDS_ON", need["SPDXID"]) for need in needs]
    content = {"packages": [source] + [entry for entry, _ in binaries.values()] + list(others.values()),
               "relationships": [dict(zip(("spdxElementId", "relationshipType", "relatedSpdxElement"), one)) for one in relations]}
    # The same sources with other libraries are another document.
    identity = hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()
    when = datetime.datetime.fromtimestamp(int(os.environ["SOURCE_DATE_EPOCH"]), datetime.timezone.utc)
    return {"spdxVersion": "SPDX-2.3", "dataLicense": "CC0-1.0", "SPDXID": "SPDXRef-DOCUMENT", "name": f"{linked['name']}-{version}",
            "documentNamespace": f"https://spdx.org/spdxdocs/{linked['name']}-{version}-{identity}",
            "creationInfo": {"created": when.strftime("%Y-%m-%dT%H:%M:%SZ"),
                             "creators": ["Organization: " + OURS, f"Tool: sbom.py-{version}"]}, **content}


def mistakes(document):
    """Violations of the rules of SPDX 2.3 that apply to these documents."""
    def need(where, entry, **fields):
        for name, pattern in fields.items():
            if not re.fullmatch(pattern, str(entry.get(name, ""))):
                yield f"{where}: {name} is {entry.get(name)!r}"

    spdx_id, text = r"SPDXRef-[A-Za-z0-9.-]+", r"(?s).+"
    yield from need("document", document, spdxVersion=r"SPDX-2\.3", dataLicense=r"CC0-1\.0", SPDXID="SPDXRef-DOCUMENT", name=text,
                    documentNamespace=r"https?://[^#\s]+")
    info = document.get("creationInfo", {})
    yield from need("creationInfo", info, created=r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\dZ")
    if not info.get("creators") or not all(re.match(r"(Person|Organization|Tool): .", who) for who in info["creators"]):
        yield f"creationInfo: creators are {info.get('creators')}"
    known = ["SPDXRef-DOCUMENT"]
    for entry in document.get("packages", []):
        yield from need(entry.get("name"), entry, SPDXID=spdx_id, name=text, downloadLocation=r"NOASSERTION|NONE|\w+:\S+",
                        filesAnalyzed="False", primaryPackagePurpose="SOURCE|LIBRARY|APPLICATION")
        for sum_ in entry.get("checksums", []):
            yield from need(entry.get("name"), sum_, algorithm="SHA256", checksumValue="[0-9a-f]{64}")
        for reference in entry.get("externalRefs", []):
            yield from need(entry.get("name"), reference, referenceCategory="PACKAGE-MANAGER", referenceType="purl",
                            referenceLocator=r"pkg:[a-z]+/[^@\s]+@\S+")
        known.append(entry.get("SPDXID"))
    for name in {name for name in known if known.count(name) > 1}:
        yield f"{name} occurs twice"
    described = False
    for relation in document.get("relationships", []):
        for end in "spdxElementId", "relatedSpdxElement":
            if relation.get(end) not in known:
                yield f"a relationship names {relation.get(end)}, which does not exist"
        described = described or relation.get("relationshipType") == "DESCRIBES"
    if not described:
        yield "it describes nothing"


def unnamed(document, binary):
    """The libraries that a binary is linked with and its package does not depend on."""
    packages = {entry["SPDXID"]: entry for entry in document["packages"]}
    own = re.match(r"(libattn\w*|attn)(\.so.*)?$", binary.name).group(1)
    names = set()
    for relation in document["relationships"]:
        if relation["relationshipType"] == "DEPENDS_ON" and packages[relation["spdxElementId"]]["name"] == own:
            other = packages[relation["relatedSpdxElement"]]
            names.add(other["name"])
            names.update("lib" + one for one in other.get("comment", "").removeprefix("linked as: ").split())
    dynamic = subprocess.run(["readelf", "-dW", binary], capture_output=True, text=True, check=True).stdout
    needed = re.findall(r"\(NEEDED\).*\[(.*?)\]", dynamic)
    if not needed:
        yield f"{binary}: readelf finds no libraries that it is linked with"
    for file in needed:
        if not file.startswith("ld-") and file.split(".so")[0] not in names:
            yield f"{own} is linked with {file}, which the SBOM does not list"


def main():
    if len(sys.argv) < 3:
        sys.exit(__doc__)
    if sys.argv[1] == "--check":
        document = json.loads(pathlib.Path(sys.argv[2]).read_text(encoding="utf-8"))
        wrong = list(mistakes(document))
        for binary in sys.argv[3:]:
            wrong += unnamed(document, pathlib.Path(binary).resolve())
        print("\n".join(wrong) or f"{len(document['packages'])} packages, {len(document['relationships'])} relationships")
        return 1 if wrong else 0
    linked = json.loads(pathlib.Path(sys.argv[1]).read_text(encoding="utf-8"))
    url = sys.argv[3] if len(sys.argv) > 3 else "NOASSERTION"
    print(json.dumps(sbom(linked, pathlib.Path(sys.argv[2]), url), indent=2))
    return 0


if __name__ == "__main__":
    sys.exit(main())
