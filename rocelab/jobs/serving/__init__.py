"""Serving of requests: from arrivals to flows of keys and values, and from their ends to latencies.

`requests` and `request_files` say who asks what and when, `prefill` when prompts are computed,
`transfers` what then travels, `decoding` when tokens appear, `outcome` what requests feel. All is
pure: the network between, simulated or a lab's, only says when flows are over.
"""
