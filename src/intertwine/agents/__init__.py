"""Reinforcement learning agents: trained at many stages, and compared in representation and in function.

    train("MiniGrid-Empty-5x5-v0", range(10), "zoo")    PPO, a snapshot at every stage
    compare("zoo", "MiniGrid-Empty-6x6-v0")             CKA of features against JSD and Spearman of actions
    load_agent("zoo/.../seed0-step8192.safetensors")    a plain nn.Module, for every other verb

Needs the extra `rl`: gymnasium, minigrid, stable-baselines3.
"""

from __future__ import annotations

from intertwine.agents.comparing import AgentComparison, Panel, compare
from intertwine.agents.page import write_page
from intertwine.agents.pairs import PolicyPair, compare_policies
from intertwine.agents.ppo import PPOSettings, train_agent
from intertwine.agents.rollouts import Episodes, play
from intertwine.agents.snapshots import Snapshot, load_agent, read_zoo
from intertwine.agents.training import Trained, train

__all__ = [
    "AgentComparison",
    "Episodes",
    "PPOSettings",
    "Panel",
    "PolicyPair",
    "Snapshot",
    "Trained",
    "compare",
    "compare_policies",
    "load_agent",
    "play",
    "read_zoo",
    "train",
    "train_agent",
    "write_page",
]
