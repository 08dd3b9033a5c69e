"""The worker beside other ways to consume a topic; see `__main__`."""
