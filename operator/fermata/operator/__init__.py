"""The Kubernetes operator: observes Workflows, asks a policy, applies its answers."""

import sys

# `kopf run -m fermata.operator` expects that importing this package registers its handlers. Whoever only wants the
# models or the validation must not pay for kopf, nor have it installed.
if "kopf" in sys.modules:
    from fermata.operator import handlers as handlers
