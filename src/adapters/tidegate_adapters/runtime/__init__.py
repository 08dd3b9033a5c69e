"""What carries out the commands of reducers and the effects of programs, and calls handlers."""
