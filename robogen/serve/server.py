"""The server: whatever a client sends, it gets an error text or loses its own connection at worst.

The event loop only moves messages; see :mod:`robogen.serve.batches` for the policy's side.
"""

from __future__ import annotations

import asyncio
import contextlib
import hmac
import itertools
import logging
import threading
import traceback
from collections.abc import Callable, Iterator, Mapping
from typing import Any, TypeGuard

from robogen.errors import ConfigError, PolicyError, RobogenError, SpecError
from robogen.policies import wire
from robogen.policies.base import Policy
from robogen.policies.layout import Layout
from robogen.policies.served import OURS, description
from robogen.serve.batches import Answer, Batches, Place
from robogen.serve.config import ServeConfig

HEALTH = "/healthz"
_SEND_S = 30.0
"""A client that does not take its answer for so long is gone."""
_CLOSE_S = 2.0
"""How long clients have to say goodbye when the server ends."""
_LOG = logging.getLogger(__name__)
_LOG.addHandler(logging.NullHandler())


class PolicyServer:
    """Serves one policy.

    Args:
        policy: The policy; its calls all come from one thread.
        name: What it is called in the metadata.
        config: Where and within which bounds.
        layout: Keys of requests; None: robogen's own, see docs/serve.md.
        sizes: Numbers in each state part, as the scene offers them; None where there is no scene.
        say: Takes lines for whoever runs the server.

    Raises:
        PolicyError: The policy reads the simulator, which no client has.
        SpecError: The layout does not hold what the policy reads.
        ConfigError: A bound is out of range, the key is missing, or a package is.
    """

    def __init__(
        self,
        policy: Policy,
        *,
        name: str,
        config: ServeConfig | None = None,
        layout: Layout | None = None,
        sizes: Mapping[str, int] | None = None,
        say: Callable[[str], None] = lambda line: None,
    ) -> None:
        self.config = config or ServeConfig()
        self.config.validate()
        self._websockets = wire.optional("websockets.asyncio.server", "openpi")
        self._gone = wire.optional("websockets.exceptions", "openpi").ConnectionClosed
        if policy.spec.privileged:
            raise PolicyError(
                f"Policy '{name}' reads the simulator's own state, which no request can hold. "
                "Serve a policy that sees cameras and proprioception alone."
            )
        self._seen = policy.spec.observation
        self.layout = (layout or Layout.flat(self._seen)).serving(self._seen)
        if sizes is None and [*self.layout.state.values()] not in ([], [self._seen.state]):
            raise SpecError(
                "The layout spreads the state over several keys, and how long each part is only a "
                "scene says. Add scene=NAME, or send the state under one key."
            )
        self._sizes = sizes
        self._policy = policy
        self._key = self.config.key()
        self._say = say
        self._metadata = wire.pack(description(name, policy, self.layout))
        self._numbers = itertools.count()
        self._open = 0

    async def run(self, ready: Callable[[str], None] = lambda url: None) -> None:
        """Serve until cancelled.

        Args:
            ready: Told the server's address once clients can come.

        Raises:
            ConfigError: The address cannot be listened on.
        """
        config = self.config
        self._batches = Batches(
            self._policy,
            batch=config.batch,
            gather_s=1e-3 * config.gather_ms,
            clients=lambda: self._open,
        )
        try:
            server = await self._websockets.serve(
                self._client,
                config.host,
                config.port,
                process_request=self._admitted,
                origins=[None],  # no web page may get here through somebody's browser
                compression=None,
                max_size=int(1e6 * config.max_message_mb),
                max_queue=2,
                logger=_LOG,
            )
        except OSError as error:
            raise ConfigError(
                f"Cannot listen on {config.host}:{config.port} ({error.strerror or error}). Choose "
                "another port, e.g. port=8001, or stop what listens there."
            ) from error
        try:
            host, port = server.sockets[0].getsockname()[:2]
            ready(f"ws://{f'[{host}]' if ':' in host else host}:{port}")
            await self._batches.work()
        finally:
            server.close()
            with contextlib.suppress(TimeoutError):
                await asyncio.wait_for(server.wait_closed(), _CLOSE_S)

    # -- clients ---------------------------------------------------------------------------------

    async def _admitted(self, connection: Any, request: Any) -> Any:
        """Answers plain HTTP, and refuses connections before they are made."""
        if request.path == HEALTH:
            return connection.respond(200, "OK\n")
        if self._key is not None:
            kind, _, given = request.headers.get("Authorization", "").partition(" ")
            same = hmac.compare_digest(given.strip().encode("utf-8", "replace"), self._key)
            if not same or kind != "Api-Key":
                return connection.respond(401, "This server wants 'Authorization: Api-Key ...'.\n")
        if self._open >= self.config.max_connections:
            return connection.respond(503, "Too many connections.\n")
        return None

    async def _client(self, connection: Any) -> None:
        """One client, from its metadata to its end."""
        if self._open >= self.config.max_connections:  # several were admitted at once
            await connection.close(1013, "too many connections")
            return
        self._open += 1
        number = next(self._numbers)
        name = f"client {number} ({_peer(connection.remote_address)})"
        self._say(f"{name} connected")
        try:
            await self._send(connection, self._metadata)
            for count in itertools.count():
                message = await connection.recv()
                await self._send(connection, await self._reply(message, number, count, name))
        except (self._gone, TimeoutError):
            pass
        finally:
            self._open -= 1
            self._batches.forget(_plain(number))
            self._say(f"{name} left")

    async def _send(self, connection: Any, message: bytes | str) -> None:
        try:
            await asyncio.wait_for(connection.send(message), _SEND_S)
        except TimeoutError:
            connection.transport.abort()
            raise

    async def _reply(self, message: Any, number: int, count: int, name: str) -> bytes | str:
        """The answer to one message: bytes, or an error text."""
        try:
            return wire.pack(await self._answer(message, number, count))
        except (wire.WireError, RobogenError) as error:
            text = " ".join(str(error).split())
            self._say(f"{name} was told: {text}")
        except Exception as error:
            trace = "".join(traceback.format_exception(error))
            self._say(f"{name}: {trace}")
            text = (
                f"The policy failed on this request with {type(error).__name__}; the server's own "
                "output has more."
            )
            if self.config.details:
                text = f"{text}\n{trace}"
        return text

    async def _answer(self, message: Any, number: int, count: int) -> Answer:
        if not isinstance(message, bytes):
            raise wire.WireError("A request must be a binary message in msgpack, got text.")
        request = wire.unpack(message)
        if not isinstance(request, Mapping):
            raise wire.WireError(f"A request must be a map, got a {type(request).__name__}.")
        place = _place(request.get(OURS), number, count)
        observation = self.layout.observation(request, self._seen, self._sizes, place.step)
        return await self._batches.ask(place, observation)


def _plain(number: int) -> str:
    """Row of a client that says nothing of episodes: its connection is one."""
    return f"connection {number}"


def _place(told: Any, number: int, count: int) -> Place:
    """Which episode a request belongs to, as a robogen client says or by its connection."""
    if told is None:
        return Place(_plain(number), episode=0, seed=number, step=count, repeats=False)
    values = dict(told) if isinstance(told, Mapping) else {}
    row, episode, seed, step = (values.get(key) for key in ("row", "episode", "seed", "step"))
    if isinstance(row, str) and _whole(episode) and _whole(seed) and _whole(step):
        return Place(f"row {row[:100]}", episode, seed, step, repeats=True)
    raise wire.WireError(
        f"'{OURS}' must be a map with row (a short text), episode, seed and step (whole numbers)."
    )


def _whole(value: Any) -> TypeGuard[int]:
    return type(value) is int and 0 <= value < 2**63


def _peer(remote: Any) -> str:
    return ":".join(map(str, remote[:2])) if isinstance(remote, tuple) else "unknown"


async def _cancel_the_rest() -> None:
    """Answers under way: a loop closed over them warns of destroyed tasks."""
    pending = asyncio.all_tasks() - {asyncio.current_task()}
    for other in pending:
        other.cancel()
    await asyncio.gather(*pending, return_exceptions=True)


@contextlib.contextmanager
def serving(server: PolicyServer) -> Iterator[str]:
    """Serve from a thread of this process; gives the server's address.

    Raises:
        ConfigError: The address cannot be listened on.
    """
    loop = asyncio.new_event_loop()
    started = threading.Event()
    found: list[str] = []
    errors: list[Exception] = []

    def ready(url: str) -> None:
        found.append(url)
        started.set()

    def work() -> None:
        try:
            loop.run_until_complete(task)
        except asyncio.CancelledError:
            pass
        except Exception as error:
            errors.append(error)
        finally:
            loop.run_until_complete(_cancel_the_rest())
            loop.run_until_complete(loop.shutdown_asyncgens())
            loop.close()
            started.set()

    task = loop.create_task(server.run(ready))
    thread = threading.Thread(target=work, name="policy-server", daemon=True)
    thread.start()
    started.wait()
    if errors:
        thread.join()
        raise errors[0]
    try:
        yield found[0]
    finally:
        loop.call_soon_threadsafe(task.cancel)
        thread.join(2 * _CLOSE_S + 1.0)
