"""The scenarios that ship, one file a subject; `tidegate.scenarios.catalogue` lists them all."""
