"""PDUs of which nothing can come: the explorer need not look at every moment at which they might arrive.

Both rules know the join protocols (docs/design/joins.md); of other gateways nothing is taken for granted.
"""

from __future__ import annotations

from isthmus.core.gateway import Gateway
from isthmus.core.wire.join import Behind, Block, Broken, FellowPdu, FellowProgress, LinkPdu, Progress, Resume
from isthmus.join.gateway import JoinGateway


def is_idle(pdu: LinkPdu | FellowPdu) -> bool:
    """Whether it matters to nobody: progress only opens the window, and no scenario has messages enough to fill it."""
    return isinstance(pdu, Progress | FellowProgress)


def is_void(gateway: Gateway | JoinGateway, join: int, pdu: LinkPdu | FellowPdu) -> bool:
    """Whether this gateway ignores what comes off a link now, and always will: it is word of an epoch that is over.

    Epochs only rise, and one that has begun is not opened again. What is ignored only because an import is frozen is
    not counted here: that nothing comes of it once the import thaws is for the search to find out.
    """
    if not isinstance(gateway, JoinGateway):
        return False
    export, imports = gateway.exports[join], gateway.imports[join]
    if isinstance(pdu, Broken):
        return pdu.epoch < export.epoch
    if isinstance(pdu, Behind):
        return pdu.epoch <= export.epoch
    if isinstance(pdu, Resume):
        return pdu.epoch < export.epoch or (pdu.epoch == export.epoch and not export.opening)
    if isinstance(pdu, Block):
        return imports.ready and pdu.epoch < imports.epoch
    return False
