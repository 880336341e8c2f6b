"""The controllers that make objects move: Jobs make pods, the scheduler binds them, the kubelet runs them.

Each talks to an API server through `client` and knows nothing of the embedded one, so each also serves a real one.
"""
