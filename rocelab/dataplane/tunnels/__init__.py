"""The flow hashes of tenants' packets at the ends of VXLAN tunnels."""
