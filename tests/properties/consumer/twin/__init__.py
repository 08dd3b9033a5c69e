"""The partition and the consumer before they had stages, to compare with."""
