"""All targets by name."""

from __future__ import annotations

from collections.abc import Mapping

from . import files, replies, requests, stored
from .target import Target

TARGETS: Mapping[str, Target] = {
    target.name: target for target in (*replies.TARGETS, *requests.TARGETS, *stored.TARGETS, *files.TARGETS)
}
