"""The expressions of the cluster paper (Sect. IV), as printed, and the exact ones where those are approximations.

All are for even trees: n processes that send, in b parts, those again in b parts, and so on, for `layers` layers. Costs
are numbers in headers (c = 1), loads are arrivals in multiples of the rate at which each of them sends, to all n alike,
itself included. All results are exact.
"""

from __future__ import annotations

from fractions import Fraction
from math import prod


def message_cost(senders: int, parts: int, layers: int) -> int:
    """C(n): the worst cost of a message, from a client at the bottom to another by way of the top."""
    if layers == 1:
        return senders**2
    return 2 * _cost_to_the_top(Fraction(senders), parts, layers) + parts**2


def _cost_to_the_top(senders: Fraction, parts: int, layers: int) -> int:
    """D(n) = D(n/b) + b², and (n/b)² for two layers."""
    if layers == 2:
        return int((senders / parts) ** 2)
    return _cost_to_the_top(senders / parts, parts, layers - 1) + parts**2


def printed_from_below(senders: int, parts: int, layers: int, layer: int) -> Fraction:
    """R(n, k) as printed: exact for two layers."""
    exponent = layer * layers - sum(range(1, layer + 1))
    return Fraction(prod(parts ** (layers - i) - 1 for i in range(1, layer)) * senders, parts**exponent)


def printed_from_above(senders: int, parts: int, layers: int, layer: int) -> Fraction:
    """S(n, k) = L(n) / b^(l - k) as printed, with L(n) = R(n, l); nothing is above the top."""
    if layer == layers:
        return Fraction(0)
    return printed_from_below(senders, parts, layers, layers) * Fraction(1, parts ** (layers - layer))


def exact_from_below(senders: int, parts: int, layers: int, layer: int) -> Fraction:
    """Everything that senders of a lowest cluster send; above, what senders below send out of their part."""
    served = Fraction(senders, parts ** (layers - layer))
    return served if layer == 1 else served * (1 - served / (parts * senders))


def exact_from_above(senders: int, parts: int, layers: int, layer: int) -> Fraction:
    """What all other senders send to those below this coordinator."""
    served = Fraction(senders, parts ** (layers - layer))
    return served * (1 - served / senders)
