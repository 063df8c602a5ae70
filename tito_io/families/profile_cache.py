"""Keep profiles in a folder, so that a template is asked once, not once per process."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Self

from attrs import frozen

from tito_core import InputError
from tito_core.data import from_data, to_data
from tito_core.seams.profile import Profile

from .kept_files import KeptFiles

_KIND = "profile"


@frozen
class ProfileCache:
    """Profiles in files, one per key. What cannot be read is missing; what cannot be written is not kept.

    Attributes:
        folder: The folder, made when it is needed; None to keep nothing.
    """

    folder: Path | None

    @classmethod
    def default(cls) -> Self:
        """Return the cache in `profiles` below `TITO_CACHE`, or else below the user's cache folder."""
        return cls(KeptFiles.default(_KIND).folder)

    def find(self, key: str) -> Profile | None:
        """Return the profile of a key; None if there is no file, or not a whole one."""
        body = KeptFiles(self.folder, _KIND).find(key)
        try:
            return None if body is None else from_data(json.loads(body), Profile)
        except (InputError, ValueError, RecursionError):  # of something else, with a checksum that fits
            return None

    def keep(self, key: str, profile: Profile) -> None:
        """Write the profile of a key; log once per folder where that is impossible."""
        body = json.dumps(to_data(profile), separators=(",", ":")).encode()
        KeptFiles(self.folder, _KIND).keep(key, body)
