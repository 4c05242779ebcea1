"""Wing alias.memory."""
