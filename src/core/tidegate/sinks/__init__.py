"""How does what user code makes of a record get into a sink, and what if it does not?

    delivery         what follows a failed delivery of one payload, and when an offset is done
    circuit_breaker  whether a sink is tried at all while it does not answer
    outbox           which of the payloads that wait for one sink are tried now
    dead_letters     what is kept of a payload that could not be delivered
    dead_records     what is sent of a record that could not be handled
    letter_writing   what follows an attempt to write that

Read them in this order.

Beside them: `laws`, `scenarios`, `specimens`, `strategies`.

`tidegate_adapters.sinks.port` carries an outbox out, and has the port of sinks.

Known not to work: no runtime joins these to the hooks of a consumer, so whoever handles its `DeliverRecords` calls the sink.
"""
