"""Recovery of invocations of dead runners, and the removal of old records."""
