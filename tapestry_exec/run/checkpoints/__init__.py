"""Runs that save what their devices hold on the way, and runs that go on from there.

`cuts` says where, `folders` how it lies on a disk, `saving` who does what.
"""
