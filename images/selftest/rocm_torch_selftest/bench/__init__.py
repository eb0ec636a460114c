"""The level ``bench``: how fast this torch is on this device, with how sure that is.

A check of this level is a supervisor without torch. It starts worker processes, one a
measurement: each begins as fresh as a user's program, and one that runs out of memory leaves
nothing behind for the next.
"""
