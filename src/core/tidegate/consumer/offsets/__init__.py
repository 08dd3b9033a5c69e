"""Which offsets of a partition are done, and the watermark below which all are."""
