"""Every claim of the papers that is counted, in the order in which `isthmus counts` shows them."""

from __future__ import annotations

from isthmus.lab.counts import acknowledged, clusters, daisies, daisies_on_receipt, joins, recipients
from isthmus.lab.counts.table import Section

SECTIONS: tuple[Section, ...] = (
    *joins.SECTIONS,
    *clusters.SECTIONS,
    *acknowledged.SECTIONS,
    *daisies.SECTIONS,
    *recipients.SECTIONS,
    *daisies_on_receipt.SECTIONS,
)
