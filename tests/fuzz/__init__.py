"""Random programs against the promise "frozen, never wrong": `python -m tests.fuzz --help`."""
