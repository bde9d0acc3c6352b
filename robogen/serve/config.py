"""How a policy is served."""

from __future__ import annotations

import ipaddress
import os
from dataclasses import dataclass

from robogen.errors import ConfigError


@dataclass(frozen=True, kw_only=True)
class ServeConfig:
    """Where and within which bounds."""

    host: str = "127.0.0.1"
    """Address to listen on; 0.0.0.0 for every network this machine is in."""
    port: int = 8000
    """Port; 0 takes a free one."""
    api_key_env: str | None = None
    """Environment variable that holds the key which clients must send; None: no key."""
    batch: int = 8
    """Most requests answered by one call of the policy, and what calls of networks are padded to:
    with the study's batch, a served policy answers as one in the study's process, bit for bit."""
    gather_ms: float = 2.0
    """How long a request waits for others while several connections are open."""
    max_message_mb: float = 32.0
    """Largest request; a larger one ends its connection."""
    max_connections: int = 64
    """Open connections; further ones get HTTP 503."""
    details: bool = False
    """Whether errors that clients get hold this machine's tracebacks."""

    def validate(self) -> None:
        """Refuse values out of range.

        Raises:
            ConfigError: One is.
        """
        least = {"batch": 1, "max_connections": 1, "port": 0, "gather_ms": 0.0}
        for name, value in least.items():
            if not getattr(self, name) >= value:
                raise ConfigError(f"{name} must be at least {value}, got {getattr(self, name)}.")
        if self.port > 65535:
            raise ConfigError(f"port must be at most 65535, got {self.port}. Choose another.")
        if not self.max_message_mb > 0:
            raise ConfigError(f"max_message_mb must be above 0, got {self.max_message_mb}.")

    @property
    def local(self) -> bool:
        """Whether only this machine can connect."""
        try:
            return ipaddress.ip_address(self.host).is_loopback
        except ValueError:
            return self.host == "localhost"

    def key(self) -> bytes | None:
        """The key that clients must send.

        Raises:
            ConfigError: The variable that should hold it is not set.
        """
        if self.api_key_env is None:
            return None
        key = os.environ.get(self.api_key_env, "").strip()
        if not key:
            raise ConfigError(
                f"api_key_env names the environment variable '{self.api_key_env}', which is not "
                "set. Set it to the key that clients must send, or leave api_key_env out."
            )
        return key.encode()
