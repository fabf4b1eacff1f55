"""Every schedule of a small topology: the real gateways between systems that are nothing but their definitions.

`scenario` says what is sent, `broadcast` is one system, `site` a system with its gateways, `world` all of them with the
links between; `search` goes through its states, shortest schedules first, and `account` puts one into words.
"""
