"""The Kubernetes operator: observes Workflows, asks a policy, applies its answers."""

import os
import sys

# The official client asks for a home when it is imported, whether it needs one or not, and fails where there is none:
# in a container whose user has no entry and no HOME. Kubernetes gives such users this one.
if os.path.expanduser("~") == "~":
    os.environ["HOME"] = "/"

# `kopf run -m fermata.operator` expects that importing this package registers its handlers. Whoever only wants the
# models or the validation must not pay for kopf, nor have it installed.
if "kopf" in sys.modules:
    # As `fermata operator` does: what compiles a kernel keeps the Lease, all pools and the probes waiting.
    os.environ.setdefault("FERMATA_NO_JIT", "1")
    from fermata.operator import handlers as handlers
