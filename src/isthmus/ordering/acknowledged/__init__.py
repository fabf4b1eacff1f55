"""Groups over a broadcast medium, where acknowledgements ride on data: TO and PO (docs/design/to-po.md)."""
