"""What is stored for each task and document."""
