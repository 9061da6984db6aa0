"""Draw more than three dimensions in two: UMAP (section 3 of GENNI), or PCA where it is not installed."""

from __future__ import annotations

import warnings

import numpy as np
from numpy.typing import NDArray

from intertwine.errors import InputError, MissingExtra


def embed(rows: NDArray[np.float64], method: str = "umap", *, seed: int = 0) -> NDArray[np.float64]:
    """Two coordinates for every row: parameter vectors, or coefficients of a plane.

    >>> rows = np.arange(12.0).reshape(4, 3)
    >>> embed(rows, "pca").shape
    (4, 2)
    """
    if method not in ("umap", "pca"):
        raise InputError(f"no embedding named {method!r}", do="use 'umap' or 'pca'")
    if len(rows) < 4 or method == "pca":
        return _pca(rows)
    try:
        with warnings.catch_warnings():
            # numba and umap warn about threads and seeds; the seed is wanted and threads do not matter here
            warnings.simplefilter("ignore")
            from umap import UMAP

            return np.asarray(
                UMAP(n_neighbors=min(15, len(rows) - 1), random_state=seed).fit_transform(rows),
                dtype=np.float64,
            )
    except ImportError as error:
        raise MissingExtra(
            "UMAP is not installed", do="pip install 'intertwine[umap]', or embed with 'pca'"
        ) from error


def _pca(rows: NDArray[np.float64]) -> NDArray[np.float64]:
    centred = rows - rows.mean(0)
    left, values, _ = np.linalg.svd(centred, full_matrices=False)
    scores = left * values
    if scores.shape[1] < 2:
        scores = np.pad(scores, ((0, 0), (0, 2 - scores.shape[1])))
    return np.asarray(scores[:, :2])
