"""The hub of Hugging Face, where there is one: a machine without a network is told so at once."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from contextlib import contextmanager
from urllib.parse import urlparse
from urllib.request import getproxies

from intertwine.errors import IntertwineError
from intertwine.vision_shim import offline


@contextmanager
def hub_if_there() -> Iterator[None]:
    """The hub is asked only if its name can be looked up: else its library would try for half a minute."""
    from huggingface_hub import constants

    host = urlparse(constants.ENDPOINT).hostname
    try:
        if not getproxies() and not constants.HF_HUB_OFFLINE:  # a proxy looks names up itself
            socket.getaddrinfo(host, None)
    except OSError as error:
        with offline():
            try:
                yield
            except IntertwineError:
                raise
            except Exception as problem:  # theirs says that somebody asked to be offline
                raise ConnectionError(f"{host} cannot be looked up ({error.strerror or error})") from problem
        return
    yield
