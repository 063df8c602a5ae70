"""LMDeploy's server, `lmdeploy serve api_server`."""

from .engine import LMDeploy

__all__ = ["LMDeploy"]
