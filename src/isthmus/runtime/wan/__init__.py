"""A WAN in user space: delay, rate, jitter and cuts between two TCP ports (docs/design/wan.md)."""
