"""The data sources that come with us, each registered with `@data_source`."""

from __future__ import annotations

from intertwine.data.dataset import Raw
from intertwine.data.files import has_text, read_imagefolder, read_npz, read_parquet
from intertwine.data.named import read_digits, read_fashion_mnist, read_torchvision
from intertwine.data.sources import Request, data_source
from intertwine.data.streamed import Encoded
from intertwine.data.tokens import Tokens, read_tokens
from intertwine.errors import DataError
from intertwine.reading import user_path


@data_source("digits", help="scikit-learn's 1x8x8 digits")
def digits(rest: str, request: Request) -> Raw:
    """1,797 images that are in the package's dependencies."""
    return read_digits(split=request.split, limit=request.limit)


@data_source("parquet", form="FILE", help="Hugging Face layout: image bytes and label, or a column of text")
def parquet(rest: str, request: Request) -> Encoded | Tokens:
    """A table of images, or of text."""
    path = user_path(rest, DataError)
    if path.suffix == ".parquet" and path.is_file() and has_text(path):
        return read_tokens(rest, request)
    return read_parquet(path, limit=request.limit, size=request.size)


@data_source("npz", form="FILE", help="arrays images and labels (or x and y, ...)")
def npz(rest: str, request: Request) -> Raw:
    """Arrays of numpy."""
    return read_npz(user_path(rest, DataError), split=request.split, limit=request.limit)


@data_source("imagefolder", form="DIR", help="DIR/class/image")
def imagefolder(rest: str, request: Request) -> Encoded:
    """A folder a class."""
    return read_imagefolder(
        user_path(rest, DataError), split=request.split, limit=request.limit, size=request.size
    )


@data_source("torchvision", form="NAME:ROOT", help="a data set of torchvision that is already in ROOT")
def torchvision(rest: str, request: Request) -> Raw:
    """What torchvision.datasets reads."""
    name, _, root = rest.partition(":")
    return read_torchvision(name, root, split=request.split, limit=request.limit, size=request.size)


@data_source("fashion-mnist", form="[:DIR]", help="the idx files, also where Debian's package puts them")
def fashion_mnist(rest: str, request: Request) -> Raw:
    """The four idx files."""
    return read_fashion_mnist(rest, split=request.split, limit=request.limit)


@data_source("text", form="FILE|DIR", help="text in the model's tokens, or characters; FILE[90%:] for a part")
def text(rest: str, request: Request) -> Tokens:
    """Text as windows of tokens."""
    return read_tokens(rest, request)
