"""Which plan is best where memory is capped?

The least memory of any plan, bytes as part of the sum, and the fastest plan that fits.
"""
