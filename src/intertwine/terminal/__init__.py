"""What all verbs of the command line share: options, loading, printing, and what ends a command."""
