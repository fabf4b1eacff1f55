"""The PDU union: everything that the wire codec knows. Every PDU is a frozen struct, encoded as a tagged array."""

from __future__ import annotations

from typing import TypeAlias

from isthmus.core.wire.clusters import HopAck, HopFrame
from isthmus.core.wire.daisy import DaisyFrame, Finished, HowFar
from isthmus.core.wire.group import GroupPdu
from isthmus.core.wire.join import FellowAck, FellowFrame, LinkPdu, PassAck, PassFrame

Pdu: TypeAlias = (
    GroupPdu
    | LinkPdu
    | FellowFrame
    | FellowAck
    | PassFrame
    | PassAck
    | HopFrame
    | HopAck
    | DaisyFrame
    | HowFar
    | Finished
)
