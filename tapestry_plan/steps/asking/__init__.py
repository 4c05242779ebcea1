"""What does a plan answer?

Transfers, memory, reasons, differences: all read from the written steps.
"""
