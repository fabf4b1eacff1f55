"""The rules that a topology must keep, so that isthmus can keep its promises for it."""
