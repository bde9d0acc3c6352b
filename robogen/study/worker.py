"""A worker process: ``python -m robogen.study.worker FD``, one OpenGL context for life.

Talks over one inherited connection. From the parent: the design, then ``("run", [keys])`` and
``("stop",)``. To the parent: ``("started", key)``, ``("outcome", outcome)``, ``("pulse",)``,
``("idle",)`` when nothing is left to run, ``("fatal", text, traceback)``.
"""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections import deque
from functools import partial
from multiprocessing.connection import Connection
from typing import Any

from robogen.errors import RobogenError
from robogen.records.schema import EpisodeKey
from robogen.study.design import Design
from robogen.study.runner import GroupRunner


class Inbox:
    """Episodes this worker has been given and has not begun."""

    def __init__(self, connection: Connection) -> None:
        self._connection = connection
        self._keys: deque[EpisodeKey] = deque()
        self.stopped = False

    def receive(self, *, block: bool) -> None:
        """Take in what the parent sent; wait for something when ``block``."""
        while not self.stopped and (block or self._connection.poll()):
            message: tuple[Any, ...] = self._connection.recv()
            block = False
            if message[0] == "run":
                self._keys.extend(message[1])
            else:
                self.stopped = True

    def peek(self) -> EpisodeKey | None:
        """The next episode, left where it is."""
        return self._keys[0] if self._keys else None

    def take(self, scene: str, policy: str) -> EpisodeKey | None:
        """The next episode if it belongs to a group."""
        self.receive(block=False)
        if self.stopped or not self._keys:
            return None
        if (self._keys[0].scene, self._keys[0].policy) != (scene, policy):
            return None
        return self._keys.popleft()


def serve(connection: Connection) -> None:
    """Work until told to stop or the parent is gone."""
    design: Design
    design, number = connection.recv()
    runner = GroupRunner(design, number)
    inbox = Inbox(connection)
    connection.send(("idle",))
    while True:
        inbox.receive(block=inbox.peek() is None)
        head = inbox.peek()
        if inbox.stopped or head is None:
            break
        scene, policy = head.scene, head.policy
        runner.run(
            scene,
            policy,
            source=partial(inbox.take, scene, policy),
            sink=lambda outcome: connection.send(("outcome", outcome)),
            started=lambda key: connection.send(("started", key)),
            pulse=lambda: connection.send(("pulse",)),
        )
        if inbox.peek() is None:
            connection.send(("idle",))
    runner.close()


def main() -> None:
    """Entry point; standard output is not used, so a policy's prints harm nothing."""
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # the parent decides when to stop
    connection = Connection(int(sys.argv[1]))
    try:
        import torch

        torch.set_num_threads(1)
        serve(connection)
    except (EOFError, BrokenPipeError, ConnectionResetError):
        os._exit(1)  # the parent is gone: nobody is left to tell
    except BaseException as error:
        text = str(error) if isinstance(error, RobogenError) else ""
        connection.send(("fatal", text, traceback.format_exc()))
        raise SystemExit(1) from error


if __name__ == "__main__":
    main()
