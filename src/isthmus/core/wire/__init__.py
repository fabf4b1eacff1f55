"""What processes and gateways say to each other, by protocol; the union that the codec knows is in `pdu.py`."""
