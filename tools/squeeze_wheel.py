#!/usr/bin/env python3
# SPDX-License-Identifier: MIT
"""Compresses the files of a wheel again with Zopfli, whose streams any unzip reads and which are 4 % smaller: squeeze_wheel.py WHEEL...

Names, order, contents, dates and modes stay, so the same wheel gives the same bytes.
"""
import os
import pathlib
import sys
import zipfile

import zopfli.zlib

PASSES = 5

class Compressor:
    """What zipfile compresses a file with, as one stream at its end."""

    def __init__(self):
        self.parts = []

    def compress(self, data):
        self.parts.append(bytes(data))
        return b""

    def flush(self):
        return zopfli.zlib.compress(b"".join(self.parts), numiterations=PASSES)[2:-4]  # without the header and the sum of zlib


def squeeze(path):
    """The wheel in place, as a whole or not at all; returns the bytes before and after."""
    before, made = path.stat().st_size, path.with_suffix(".squeezed")
    zipfile._get_compressor = lambda kind, level=None: Compressor()  # zipfile takes no other compressor by itself
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(made, "w") as new:
        new.comment = old.comment
        for entry in old.infolist():
            data = old.read(entry)
            entry.compress_type = zipfile.ZIP_DEFLATED
            new.writestr(entry, data)
    with zipfile.ZipFile(path) as old, zipfile.ZipFile(made) as new:
        if new.testzip() is not None or [(e.filename, e.CRC, e.date_time, e.external_attr) for e in new.infolist()] != [
            (e.filename, e.CRC, e.date_time, e.external_attr) for e in old.infolist()
        ]:
            raise SystemExit(f"{path}: what was written is not what was read")
    os.replace(made, path)
    return before, path.stat().st_size


def main():
    paths = [pathlib.Path(word) for word in sys.argv[1:]]
    if not paths or any(path.suffix != ".whl" for path in paths):
        sys.exit(__doc__)
    for path in paths:
        print(f"{path.name}: %d bytes, now %d" % squeeze(path))


if __name__ == "__main__":
    main()
