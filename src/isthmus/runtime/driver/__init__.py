"""Runs endpoints in an asyncio event loop: their clock, their network, their timers, their traces."""
