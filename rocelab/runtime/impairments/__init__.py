"""What cables do to packets while a lab runs: lose them, flip bits, take longer.

`control` is the whole interface; `impairment` says what there is, `program` and `maps` are the
eBPF program that does it, `delayline` is the process that holds packets back and `lineprocess`
starts and ends it.
"""
