"""The stored record of a task and a document, and the decisions about it."""
