"""Configurations: what users read and write, and their identity."""

from __future__ import annotations

import hashlib
import json
from typing import Any

Config = dict[str, Any]
"""One candidate, as a JSON-able dict."""


def config_hash(config: Config) -> str:
    """Hash a configuration, ignoring the order of keys; this identifies a candidate."""
    return hashlib.sha256(json.dumps(config, sort_keys=True).encode()).hexdigest()[:16]
