"""Agents: worlds, the network, training that resumes to the bit, pairs against a slow transcription."""

from __future__ import annotations

import itertools
import json
import random
import tempfile
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

import intertwine
from intertwine.cli import main
from intertwine.comparing.measures import similarity
from intertwine.errors import DataError, InputError, MissingExtra, NotFound, Unsupported, WeightsError
from intertwine.sweeping.store import ResultStore
from intertwine.zoo.agent import ActorCritic

pytest.importorskip("minigrid", reason="needs the extra rl")
pytest.importorskip("stable_baselines3", reason="needs the extra rl")

from intertwine import agents
from intertwine.agents.environments import make_environment

SMALL, OTHER = "MiniGrid-Empty-5x5-v0", "MiniGrid-Empty-6x6-v0"
TINY = agents.PPOSettings(steps=384, stages=3, worlds=4, horizon=32, batch=64, epochs=2, episodes=2)

pytestmark = pytest.mark.usefixtures("one_thread")


@pytest.fixture(scope="module")
def zoo(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three seeds without and two with a bottleneck, hardly trained."""
    folder = tmp_path_factory.mktemp("zoo")
    agents.train(SMALL, range(3), folder, settings=TINY, jobs=1)
    agents.train(SMALL, range(2), folder, bottleneck=8, settings=TINY, jobs=1)
    return folder


@pytest.mark.parametrize(
    "name",
    ["MiniGrid-Empty-5x5-v0", "MiniGrid-Empty-Random-6x6-v0", "MiniGrid-DoorKey-5x5-v0",
     "MiniGrid-LavaGapS5-v0", "MiniGrid-Dynamic-Obstacles-5x5-v0"],
)  # fmt: skip
def test_views_are_those_of_minigrid(name):
    """Remembered views are exact, in still worlds and in those where doors open and balls move."""
    import gymnasium

    ours, theirs = make_environment(name), gymnasium.make(name)
    source = np.random.default_rng(0)
    seen, plain = ours.reset(seed=1)[0], theirs.reset(seed=1)[0]
    for _ in range(400):
        assert (seen == plain["image"].transpose(2, 0, 1)).all()
        action = int(source.integers(ours.action_space.n))
        seen, *outcome, _ = ours.step(action)
        plain, *expected, _ = theirs.step(action)
        assert outcome == expected
        if outcome[1] or outcome[2]:
            seen, plain = ours.reset()[0], theirs.reset()[0]


def test_wrong_worlds_are_told():
    with pytest.raises(NotFound, match="Empty-5x6") as caught:
        make_environment("MiniGrid-Empty-5x6-v0")
    assert "MiniGrid-Empty-5x5-v0" in caught.value.do
    with pytest.raises(Unsupported, match="CartPole"):
        make_environment("CartPole-v1")


def test_a_missing_extra_is_told(monkeypatch):
    import sys

    monkeypatch.setitem(sys.modules, "minigrid", None)
    with pytest.raises(MissingExtra, match="minigrid") as caught:
        make_environment(SMALL)
    assert "intertwine[rl]" in caught.value.do


def test_episodes_are_whole_and_counted_alike():
    torch.manual_seed(0)
    net = ActorCritic()
    found = agents.play(net, SMALL, episodes=5, seed=3)
    assert len(found.rewards) == 5 and all(0 <= r < 1 for r in found.rewards)
    again = agents.play(net, SMALL, episodes=5, seed=3)
    assert again.rewards == found.rewards and again.states.equal(found.states)
    # A total reward is 1 - 0.9 (length / 100), or 0 after 100 steps: the lengths add up to the states.
    lengths = [100 if r == 0 else round((1 - r) / 0.9 * 100) for r in found.rewards]
    assert sum(lengths) == len(found.states)
    assert found.sample(50).shape == (50, 3, 7, 7) and len(found.sample(10_000)) == 10_000


def test_the_best_policy_is_optimal_and_a_still_one_poor():
    class Fixed(torch.nn.Module):
        """Goes forward where it can, turns right at a wall: the shortest way from the corner."""

        def forward(self, x):
            wall = x[:, 0, 3, 5] == 2  # the cell before the agent
            scores = torch.full((len(x), 7), -1e9)
            scores[range(len(x)), torch.where(wall, 1, 2)] = 0.0
            return scores, scores[:, :1]

    found = agents.play(Fixed(), SMALL, episodes=2)
    assert found.reward == pytest.approx(1 - 0.9 * 5 / 100)
    assert agents.Snapshot(SMALL, 0, 0, None, 7, found.reward).grade == "optimal"


def test_a_killed_training_ends_with_the_same_bits(tmp_path, monkeypatch):
    state = random.getstate(), np.random.get_state()[1].tolist(), torch.get_rng_state()
    (tmp_path / "temporary").mkdir()
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path / "temporary"))
    whole = agents.train_agent(SMALL, 7, tmp_path / "whole", settings=TINY)
    assert not list((tmp_path / "temporary").iterdir())  # stable-baselines3 would leave one a run
    assert random.getstate() == state[0] and np.random.get_state()[1].tolist() == state[1]
    assert torch.get_rng_state().equal(state[2])

    from stable_baselines3 import PPO

    learn, calls = PPO.learn, []

    def killed(self, *args, **kwargs):
        calls.append(1)
        learn(self, *args, **kwargs)
        if len(calls) == 2:
            raise KeyboardInterrupt  # after the steps of stage 2, before its snapshot
        return self

    monkeypatch.setattr(PPO, "learn", killed)
    with pytest.raises(KeyboardInterrupt):
        agents.train_agent(SMALL, 7, tmp_path / "cut", settings=TINY)
    assert len(list((tmp_path / "cut").glob("seed7-*"))) == 2
    monkeypatch.setattr(PPO, "learn", learn)
    assert agents.train_agent(SMALL, 7, tmp_path / "cut", settings=TINY) == whole
    for path in (tmp_path / "whole").glob("seed7-*"):
        assert path.read_bytes() == (tmp_path / "cut" / path.name).read_bytes()
    ends = [agents.load_agent(p) for p in sorted((tmp_path / "whole").glob("seed7-*"))]
    assert not ends[0].actor[0].weight.equal(ends[-1].actor[0].weight)  # and something was learnt


def test_nothing_pickled_is_written(zoo):
    files = [p for p in zoo.rglob("*") if p.is_file() and p.name != ".lock"]
    assert {p.suffix for p in files} == {".json", ".safetensors"}


def test_snapshots_say_what_they_are(zoo):
    found = agents.read_zoo(zoo)
    assert len(found) == 5 * 4
    assert {s.bottleneck for s in found} == {None, 8} and {s.step for s in found} == {0, 128, 256, 384}
    net = agents.load_agent(zoo / found[-1].file)
    assert not net.training and net.bottleneck == 8
    assert net.features(torch.zeros(1, 3, 7, 7)).shape == (1, 8)


def test_training_is_not_done_twice(zoo):
    again = agents.train(SMALL, range(3), zoo, settings=TINY, jobs=1)
    assert again.ran == 0 and len(again.snapshots) == 12 and not again.failed


def test_agents_of_a_kind_are_trained_alike(zoo):
    with pytest.raises(InputError, match="epochs is 2 there and 3 here"):
        agents.train(SMALL, [9], zoo, settings=replace(TINY, epochs=3), jobs=1)


def test_what_was_compared_is_not_compared_again(zoo):
    told = []
    first = agents.compare(zoo, OTHER, states=40, episodes=2, jobs=1)
    second = agents.compare(
        zoo, OTHER, states=40, episodes=2, jobs=1, progress=lambda *args: told.append(args)
    )
    assert second == first and not told
    assert [(p.trained, p.tested, p.bottleneck) for p in first.panels] == [
        (SMALL, OTHER, None), (SMALL, OTHER, 8),
    ]  # fmt: skip
    assert [len(p.pairs) for p in first.panels] == [66, 28]
    only = agents.compare(zoo, OTHER, bottleneck=8, states=40, episodes=2, jobs=1)
    assert only.networks == [8]


def slow_pair(a, b, states):
    """The measures of a pair, one state after another, from the definitions."""
    from scipy.spatial.distance import jensenshannon
    from scipy.stats import spearmanr

    jsd, ranks, left, right = [], [], [], []
    for state in states:
        x = state[None].float()
        p, q = (net(x)[0][0].double().softmax(0).numpy(force=True) for net in (a, b))
        jsd.append(jensenshannon(p, q) ** 2)
        ranks.append(spearmanr(p, q).statistic)
        left.append(a.features(x)[0].numpy(force=True).astype(float))
        right.append(b.features(x)[0].numpy(force=True).astype(float))
    x, y = (np.stack(side) - np.mean(side, 0) for side in (left, right))
    norm = np.linalg.norm
    return norm(y.T @ x) ** 2 / (norm(x.T @ x) * norm(y.T @ y)), np.mean(jsd), np.mean(ranks)


def test_pairs_against_a_slow_transcription(zoo):
    found = [s for s in agents.read_zoo(zoo) if s.step in (0, 384)]
    for bottleneck in (None, 8):
        nets = {s.file: agents.load_agent(zoo / s.file) for s in found if s.bottleneck == bottleneck}
        states = {
            file: agents.play(net, SMALL, episodes=2, seed=i).sample(30)
            for i, (file, net) in enumerate(nets.items())
        }
        pairs = agents.compare_policies(nets, states)
        assert [(p.a, p.b) for p in pairs] == list(itertools.combinations(nets, 2))
        for pair in pairs[:4]:
            joined = torch.cat([states[pair.a], states[pair.b]])
            expected = slow_pair(nets[pair.a], nets[pair.b], joined)
            assert (pair.cka, pair.jsd, pair.spearman) == pytest.approx(expected, abs=1e-6)
            whole = intertwine.functional_similarity(nets[pair.a], nets[pair.b], joined.float())
            assert pair.jsd == pytest.approx(whole.jsd.value, abs=1e-6)


def test_equal_policies_in_other_weights(zoo):
    """g A acts as A does: JSD 0 and Spearman 1; CKA is 1 for a permutation, below for positive scales."""
    net = agents.load_agent(zoo / SMALL / "seed0-step384.safetensors")
    symmetry = intertwine.trace(net, torch.rand(2, 3, 7, 7))
    twin = intertwine.act(net, symmetry.sample(0))
    states = agents.play(net, SMALL, episodes=2).sample(40)
    (pair,) = agents.compare_policies({"a": net, "b": twin}, {"a": states, "b": states})
    assert pair.jsd < 1e-6 and pair.spearman == pytest.approx(1) and pair.cka < 1 - 1e-4
    moved = net.features(states.float())[:, torch.randperm(64)]
    assert similarity(net.features(states.float()).detach(), moved.detach()) == pytest.approx(1, abs=1e-5)


def test_features_that_never_change_have_no_similarity():
    torch.manual_seed(0)
    net, dead = ActorCritic(), ActorCritic()
    with torch.no_grad():
        dead.features[5].weight.zero_()
    states = torch.randint(0, 9, (8, 3, 7, 7), dtype=torch.uint8)
    (pair,) = agents.compare_policies({"a": net, "b": dead}, {"a": states, "b": states})
    assert pair.cka is None and pair.jsd > 0


def test_empty_and_damaged_zoos(tmp_path, zoo):
    with pytest.raises(InputError, match="no folder"):
        agents.compare(tmp_path / "none", SMALL)
    with pytest.raises(DataError, match="no agents") as caught:
        agents.compare(tmp_path, SMALL)
    assert "agents train" in caught.value.do
    with pytest.raises(NotFound, match="no environment"):
        agents.compare(zoo, "MiniGrid-Nowhere-v0")
    with pytest.raises(DataError, match="too few"):
        agents.compare(zoo, SMALL, bottleneck=3)
    (tmp_path / SMALL).mkdir()
    (tmp_path / SMALL / "seed0-step0.safetensors").write_bytes(b"not a file of weights")
    with pytest.raises(WeightsError, match="cannot read"):
        agents.compare(tmp_path, SMALL)


def test_settings_that_make_no_sense():
    with pytest.raises(InputError, match="stages"):
        agents.PPOSettings(steps=2000, stages=2)
    with pytest.raises(InputError, match="steps is 0"):
        agents.PPOSettings(steps=0)
    with pytest.raises(InputError, match="bottleneck of 0"):
        agents.train(SMALL, [0], "nowhere", bottleneck=0)


def test_command_line(zoo, tmp_path, capsys):
    command = ["agents", "compare", str(zoo), "--env", SMALL, "--states", "40", "--episodes", "2", "--jobs=1"]
    assert main([*command, "--json", "-o", str(tmp_path / "page.html")]) == 0
    out = capsys.readouterr()
    found = json.loads(out.out)
    assert [p["pairs"] for p in found["panels"]] == [66, 28] and "rollouts in" in out.err
    rho = found["panels"][0]["jsd"]["rho"]
    assert -1 <= rho["low"] <= rho["value"] <= rho["high"] <= 1
    assert found["panels"][1]["jsd"]["rho"]["low"] is None  # two seeds: no interval
    page = (tmp_path / "page.html").read_text()
    assert "bottleneck of 8: CKA against" in page and "best fit" in page and "seed 2 at step 384" in page
    assert main(command) == 0 and "averages" in capsys.readouterr().out
    again = ["agents", "train", "--env", SMALL, "--seeds", "0", "-o", str(tmp_path / "zoo"), "--jobs", "1"]
    assert main([*again, "--steps", "2048", "--stages", "1", "--episodes", "1", "--json"]) == 0
    made = json.loads(capsys.readouterr().out)["agents"]
    assert [a["step"] for a in made] == [0, 2048] and Path(made[1]["weights"]).is_file()
    assert main([*again[:3], "MiniGrid-Empty-5x6-v0", *again[4:]]) == 2
    assert "did you mean MiniGrid-Empty" in capsys.readouterr().err
    assert main(["agents", "compare", str(tmp_path), "--env", SMALL]) == 2
    assert "no agents in" in capsys.readouterr().err


def test_the_help_states_the_defaults(capsys):
    assert main(["agents", "train", "--help"]) == 0
    text, plain = " ".join(capsys.readouterr().out.split()), agents.PPOSettings()
    for value in (plain.steps, plain.stages, plain.learning_rate, plain.episodes):
        assert f"(default: {value})" in text


def test_a_failed_seed_stops_no_other(tmp_path, monkeypatch):
    from intertwine.agents import tasks

    def broken(environment, seed, *args, **kwargs):
        if seed == 0:
            raise RuntimeError("no such luck")
        return agents.train_agent(environment, seed, *args, **kwargs)

    monkeypatch.setattr(tasks, "train_agent", broken)
    done = agents.train(SMALL, [0, 1], tmp_path, settings=TINY, jobs=1)
    assert list(done.failed.values()) == ["RuntimeError: no such luck"]
    assert {s.seed for s in done.snapshots} == {1}


def test_workers_know_the_kinds_of_agents(zoo, tmp_path):
    """A fresh process has imported nothing; the task itself says where its kind is defined."""
    import subprocess
    import sys

    from intertwine.sweeping.task import Task

    inputs = {"environment": SMALL, "seed": 0, "bottleneck": None, "settings": {"steps": -1}}
    task = Task.of("agent", inputs)
    code = (
        "from intertwine.sweeping.task import Task, run_task\n"
        f"task = Task({task.kind!r}, {task.inputs!r}, (), '', {task.home!r})\n"
        f"print(run_task(task, {str(tmp_path)!r}).error)"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "steps is -1" in done.stdout
    assert not ResultStore(tmp_path).is_done(task)


def test_figures_and_the_table_of_the_source(tmp_path, capsys, monkeypatch):
    """All six recipes on a scale of seconds; the page, the numbers and the verdicts are there."""
    from intertwine.comparing.experiments import Pair, Relation
    from intertwine.errors import MissingExtra as Missing
    from intertwine.pages import png
    from intertwine.recipes import agents as recipe
    from intertwine.recipes import functional

    def refuse(*args, **kwargs):
        raise Missing("no PNG in this test")

    pairs = tuple(Pair(a, b, 0.1 * i, -0.1 * i, 0.2 * i, True) for i, (a, b) in enumerate(["xy", "xz", "yz"]))
    monkeypatch.setattr(png, "write_png", refuse)
    monkeypatch.setattr(recipe, "find_relation", lambda *args: Relation("cka", pairs, -1.0, 1.0))
    assert functional.find_relation is not recipe.find_relation
    monkeypatch.setitem(recipe.SCALES, "quick", recipe.Scale({5: 2048}, 1, 3, (5,)))
    for name in ("fig3.6", "figA1", "fig3.7", "fig3.8", "figA2", "table3.1"):
        assert main(["reproduce", f"functional-{name}", "--quick", "-o", str(tmp_path), "--json"]) == 0
        found = json.loads(capsys.readouterr().out)
        assert found["claims"] and (tmp_path / f"functional-{name}.html").stat().st_size > 1000
    labels = {row["experiment"]: row for row in found["rows"]}
    assert list(labels) == ["classifiers", "agents", "agents with bottleneck"]
    assert labels["agents"]["CKA and jsd, source"] == -0.721
    assert labels["classifiers"]["CKA and jsd, here"].startswith("-1.00")
    assert len(found["agents"]["panels"]) == 1 and found["agents"]["panels"][0]["pairs"] == 15
    assert any("bottleneck strengthens" in claim["what"] for claim in found["claims"])


def test_the_docs_say_what_was_measured():
    import importlib.util

    root = Path(__file__).resolve().parents[2]
    spec = importlib.util.spec_from_file_location("made", root / "scripts" / "make_agents_table.py")
    script = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(script)
    page = (root / "docs" / "agents.md").read_text()
    assert script.render(page) == page, "run python scripts/make_agents_table.py"
