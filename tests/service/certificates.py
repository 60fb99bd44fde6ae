"""Certificates for tests, which openssl makes."""

import shutil
import subprocess

import pytest


def certified(folder, name):
    """A certificate of a host, signed by itself, and its key; the test is skipped without openssl."""
    if shutil.which("openssl") is None:
        pytest.skip("no openssl")
    key, file = folder / "key.pem", folder / "certificate.pem"
    subject = ["-subj", f"/CN={name}", "-addext", f"subjectAltName=DNS:{name}"]
    kind = ["-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:prime256v1", "-nodes", "-days", "2"]
    command = ["openssl", "req", "-x509", *kind, "-keyout", str(key), "-out", str(file), *subject]
    subprocess.run(command, check=True, capture_output=True)
    return file, key
