"""What would another choice cost, with all else kept?

Plans that keep the choices of another plan, and what they cost beside it.
"""
