"""Finds a user's scenarios, runs them in several processes, and stores counterexamples."""
