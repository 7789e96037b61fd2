"""The certificates of a connection, and where they come from when nobody names them."""

from __future__ import annotations

import os

from embla._native import Tls

__all__ = ["Tls", "tls_from_environment"]


def tls_from_environment() -> Tls:
    """Return the certificates that the environment names, as the programs of Embla do."""
    return Tls(
        certificate=os.environ.get("EMBLA_TLS_CERT", ""),
        authorities=os.environ.get("EMBLA_TLS_CA", ""),
        key=os.environ.get("EMBLA_TLS_KEY", ""),
        revoked=os.environ.get("EMBLA_TLS_REVOKED", ""),
        token=os.environ.get("EMBLA_TOKEN_FILE", ""),
    )
