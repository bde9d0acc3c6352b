"""Any policy behind openpi's websocket protocol, for clients that robogen knows nothing of."""

from robogen.serve.config import ServeConfig
from robogen.serve.server import PolicyServer, serving

__all__ = ["PolicyServer", "ServeConfig", "serving"]
