"""The partition and the consumer before they had stages: `tidegate.consumer.partition` must agree
with them.
"""
