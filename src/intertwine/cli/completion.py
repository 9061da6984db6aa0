"""`intertwine completion`: a script that lets a shell complete verbs, options and choices.

The script holds every word: nothing is started when Tab is pressed.
"""

from __future__ import annotations

import argparse
import shlex
import sys
from collections.abc import Iterator
from typing import Any

from intertwine.terminal.declare import Subparsers, choice, verb

_BASH = """\
_intertwine() {{
  local cur="${{COMP_WORDS[COMP_CWORD]}}" prev="${{COMP_WORDS[COMP_CWORD-1]}}" words=""
  case "${{COMP_WORDS[*]:1:COMP_CWORD-1}} " in
{cases}
    *) words="{verbs}" ;;
  esac
  COMPREPLY=($(compgen -W "$words" -- "$cur"))
}}
complete -o default -F _intertwine intertwine
"""
_CASE = """\
    "{words} "*)
      case "$prev:$cur" in
{choices}      esac ;;"""


def add_parser(subparsers: Subparsers[Any]) -> None:
    """Declare the verb."""
    parser = verb(subparsers, "completion", run, "a script that completes verbs and options in your shell",
        "Print a script for bash, zsh or fish.")  # fmt: skip
    choice(parser, "shell", ("bash", "zsh", "fish"), "which shell")


def run(args: argparse.Namespace) -> None:
    """Print the script."""
    from intertwine.cli.parser import build_parser

    parser = build_parser()
    if args.shell == "fish":
        script = "\n".join(_fish(parser)) + "\n"
    else:
        script = "autoload -U +X bashcompinit && bashcompinit\n" * (args.shell == "zsh") + _bash(parser)
    sys.stdout.write(script)  # for a shell: as it is, and without what escapes names for people


def _bash(parser: argparse.ArgumentParser) -> str:
    from intertwine.cli.parser import commands

    cases: list[str] = []
    groups: dict[str, list[str]] = {}
    for words, each in commands(parser).items():
        choices = '*:-*) words="' + " ".join(_options(each)) + '" ;;\n'
        for action in each._actions:
            if action.choices:
                names = "|".join(f"{option}:*" for option in action.option_strings) or "*"
                line = f'{names}) words="{" ".join(map(str, action.choices))}" ;;\n'
                choices = line + choices if action.option_strings else choices + line
        cases.append(_CASE.format(words=" ".join(words), choices=choices))
        if len(words) > 1:
            groups.setdefault(words[0], []).append(words[1])
    # after the commands below it, so that `zoo train` is met before `zoo`
    cases += [f'    "{verb} "*) words="{" ".join(names)}" ;;' for verb, names in groups.items()]
    verbs = dict.fromkeys(words[0] for words in commands(parser))
    return _BASH.format(cases="\n".join(cases), verbs=" ".join([*verbs, *_options(parser)]))


def _fish(parser: argparse.ArgumentParser) -> Iterator[str]:
    yield "complete -c intertwine -f -n __fish_use_subcommand -l version -d 'show the version'"
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            for choice in action._choices_actions:
                yield _fish_line("__fish_use_subcommand", f"-f -a {choice.dest}", choice.help)
    from intertwine.cli.parser import commands

    for words, each in commands(parser).items():
        seen = " ; and ".join(f"__fish_seen_subcommand_from {word}" for word in words)
        if len(words) > 1:
            yield _fish_line(f"__fish_seen_subcommand_from {words[0]}", f"-f -a {words[1]}", each.description)
        for action in each._actions:
            for option in action.option_strings:
                kind = f"-l {option[2:]}" if option.startswith("--") else f"-s {option[1:]}"
                if action.choices:
                    kind += f" -x -a {shlex.quote(' '.join(map(str, action.choices)))}"
                elif action.nargs != 0:
                    kind += " -r"
                yield _fish_line(seen, kind, action.help)


def _fish_line(when: str, what: str, text: Any) -> str:
    return f"complete -c intertwine -n {shlex.quote(when)} {what} -d {shlex.quote(str(text or ''))}"


def _options(parser: argparse.ArgumentParser) -> list[str]:
    return [option for action in parser._actions for option in action.option_strings]
