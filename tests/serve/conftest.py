from __future__ import annotations

import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from robogen.serve import PolicyServer, ServeConfig, serving

sys.path.append(str(Path(__file__).parents[1] / "policies"))  # the double and its codec


@pytest.fixture
def start() -> Iterator[Callable[..., str]]:
    """Serves a policy in a thread until the test ends, and gives the address."""
    with ExitStack() as stack:

        def one(policy, *, layout=None, sizes=None, say=lambda line: None, name="bee", **config):
            server = PolicyServer(
                policy,
                name=name,
                config=ServeConfig(port=0, **config),
                layout=layout,
                sizes=sizes,
                say=say,
            )
            return stack.enter_context(serving(server))

        yield one
