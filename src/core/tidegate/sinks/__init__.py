"""Delivery of payloads, which user code makes of records, to sinks; and dead letters.

In reading order:
    delivery         the result of a failed delivery, and when an offset is done
    circuit_breaker  whether a sink that does not answer is tried
    outbox           which waiting payloads of one sink are tried now
    dead_letters     the stored form of a record that could not be handled, or delivered
    letter_writing   the result of an attempt to write that
    replay           which dead letters are delivered again, and up to where that is done

Known not to work: no runtime connects these modules to a consumer, so the code that handles
`DeliverRecords` calls the sink. `tidegate_adapters.sinks.port` runs an outbox.
"""
