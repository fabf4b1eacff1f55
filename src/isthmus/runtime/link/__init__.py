"""Links between gateways over TCP or TLS, across connections that come and go (docs/design/links.md)."""
