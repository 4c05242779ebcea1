"""Where does each buffer lie, and when?

Places in the arenas of devices, and what waits in host memory while an arena is full.
"""
