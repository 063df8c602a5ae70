"""Fixtures of this folder."""

from tests.io.llamacpp_server.stand_in import stand_in

__all__ = ["stand_in"]
