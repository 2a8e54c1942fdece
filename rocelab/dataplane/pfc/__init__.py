"""Priority-based flow control of a running lab (IEEE 802.1Qbb).

`program` puts the accounting of rocelab/dataplane/bpf/pfc.bpf.c on every port and a gate below each
lossless class; `daemon` is the process that sends pause frames and moves the gates; `control`
starts and ends it; `reading` reads what was counted.
"""
