"""The decision core: what a scheduler sees, what it may do, and the policies that choose.

Pure and self-contained: no clock, no I/O besides loading a policy file, no simulator, no cluster.
"""

import os

# From 1.29 on, ONNX Runtime's wheels for Linux report every session to Microsoft, with a thread and a database in the
# cache folder of their own. They look at this variable once, as they are imported, so it is set before anything here
# can do that; whoever wants the reports sets it to 0.
os.environ.setdefault("ORT_DISABLE_TELEMETRY", "1")
