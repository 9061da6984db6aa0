"""Grid worlds by name: what an agent sees of one, as a 3x7x7 picture, and what it may do."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

import numpy as np

from intertwine.agents.views import remember_views
from intertwine.errors import MissingExtra, NotFound, Unsupported
from intertwine.zoo.agent import VIEW

if TYPE_CHECKING:
    import gymnasium


def _gymnasium() -> Any:
    """gymnasium with the environments of minigrid in its registry."""
    try:
        import gymnasium
        import minigrid  # noqa: F401  (registers its environments)
    except ModuleNotFoundError as error:
        raise MissingExtra(f"{error.name} is not installed", do='pip install "intertwine[rl]"') from error
    return gymnasium


def make_environment(name: str) -> gymnasium.Env[Any, Any]:
    """A fresh environment whose observations are pictures, uint8 of 3x7x7.

    NotFound names the nearest environments; Unsupported says what an environment lacks: agents here see the
    7x7 cells in front of them, and choose one of several actions.
    """
    gym = _gymnasium()
    try:
        made = gym.make(name, disable_env_checker=True)
    except (gym.error.UnregisteredEnv, gym.error.Error, ModuleNotFoundError) as error:
        raise NotFound(f"no environment {name!r}", do=_suggestion(gym, name)) from error
    seen = getattr(made.observation_space, "spaces", {}).get("image")
    if seen is None or seen.shape != (*VIEW[1:], VIEW[0]) or not hasattr(made.action_space, "n"):
        raise Unsupported(
            f"{name} shows {made.observation_space}, and takes {made.action_space}",
            so="these agents cannot act in it",
            do="take an environment of MiniGrid with its usual 7x7 view, as MiniGrid-Empty-5x5-v0",
        )
    remember_views(made.unwrapped)

    class Picture(gym.ObservationWrapper):  # type: ignore[name-defined,misc]
        """The picture alone, channels first; the mission is the same throughout."""

        def __init__(self) -> None:
            super().__init__(made)
            self.observation_space = gym.spaces.Box(0, 255, VIEW, np.uint8)

        def observation(self, observation: dict[str, Any]) -> np.ndarray:
            return np.ascontiguousarray(observation["image"].transpose(2, 0, 1))

    return Picture()


def _suggestion(gym: Any, name: str) -> str:
    known = [key for key in gym.registry if key.startswith("MiniGrid-")]
    near = difflib.get_close_matches(name, known, n=3, cutoff=0.5) or known[:3]
    return (
        f"did you mean {', '.join(near)}? minigrid has {len(known)} environments, gymnasium.pprint_registry()"
    )


def count_actions(name: str) -> int:
    """How many actions an environment takes."""
    environment = make_environment(name)
    try:
        return int(environment.action_space.n)  # type: ignore[attr-defined]
    finally:
        environment.close()
