"""What cables do to packets while a lab runs: lose them, flip bits, take longer.

`control` is the whole interface; `impairment` defines the kinds, `program` and `maps` are the eBPF
program that applies them, `delayline` is the process that holds packets back and `lineprocess`
starts and stops it.
"""
