"""isthmus joins existing message-broadcast systems into one, without changing any of them."""

__version__ = "0.1.0"
