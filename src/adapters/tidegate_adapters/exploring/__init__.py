"""From what a user names to scenarios, their runs in several processes, and counterexamples as files."""
