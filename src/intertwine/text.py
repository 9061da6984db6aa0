"""Text that others chose, on our terminal: what would move, recolour, hide or reverse is shown escaped."""

from __future__ import annotations

_LONG = 80


def shown(text: object) -> str:
    r"""The text with every character that does not print as itself escaped; lines and tabs stay.

    Escape sequences, control characters of both kinds, marks that reverse the direction of reading, and the
    halves of characters that undecodable file names consist of.

    >>> shown("net\x1b[2J\u202e")
    'net\\x1b[2J\\u202e'
    >>> shown("naïve, 網")
    'naïve, 網'
    """
    text = str(text)
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or c in "\n\t" else _escaped(c) for c in text)


def quoted(value: object) -> str:
    """The value as it stands in a message: with quotes if it is text, and cut if it is long.

    >>> quoted("a"), quoted(2.5), quoted("9" * 5000)
    ("'a'", '2.5', "'999999999999999999999999...' (5,000 characters)")
    """
    try:
        text = repr(value)
    except ValueError:  # an integer of more digits than Python writes
        return "a number of thousands of digits"
    if len(text) <= _LONG:
        return text
    if isinstance(value, str):
        start = repr(value[:24])
        return f"{start[:-1]}...{start[-1]} ({len(value):,} characters)"
    return f"{text[:24]}... ({len(text):,} characters)"


def first_line(error: BaseException) -> str:
    """What an exception of others says, in a line.

    >>> first_line(KeyError()), first_line(ValueError("no\\nreally"))
    ('KeyError', 'no')
    """
    try:
        if isinstance(error, SystemExit):
            return f"its code called sys.exit({quoted(error.code)})"
        lines = str(error).strip().splitlines()
    except BaseException:  # an exception's own __str__ is code of others, too, and may do anything
        lines = []
    return (lines or [type(error).__name__])[0][:300]


def _escaped(character: str) -> str:
    return character.encode("unicode_escape").decode("ascii")
