"""SGLang, over HTTP or straight into an ASGI application that speaks its dialect."""

from .engine import SGLang
from .requests import ROUTES, Route

__all__ = ["ROUTES", "Route", "SGLang"]
