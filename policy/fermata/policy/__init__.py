"""The decision core: what a scheduler sees, what it may do, and the policies that choose.

Pure and self-contained: no clock, no I/O besides loading a policy file, no simulator, no cluster.
"""
