"""The process that runs tasks, and its programs."""
