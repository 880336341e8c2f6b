"""What several differential tests need."""

from tests.unit.operator.conftest import patient

__all__ = ["patient"]
