"""The cells that a view reads, and the ladder of ways that answers questions about them."""
