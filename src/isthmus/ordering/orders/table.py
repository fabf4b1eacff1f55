"""The orders that a system can keep, by the names that topology files use."""

from __future__ import annotations

from collections.abc import Callable
from typing import Literal, TypeAlias

from isthmus.ordering.orders.causal import CausalOrder
from isthmus.ordering.orders.fifo import FifoOrder
from isthmus.ordering.orders.order import Order
from isthmus.ordering.orders.total import TotalOrder

OrderName: TypeAlias = Literal["fifo", "causal", "total"]

ORDERS: dict[OrderName, Callable[[], Order]] = {"fifo": FifoOrder, "causal": CausalOrder, "total": TotalOrder}
