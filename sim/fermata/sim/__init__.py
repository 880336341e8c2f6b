"""The simulator: a deterministic discrete-event engine, its workloads, and an embedded control plane."""
