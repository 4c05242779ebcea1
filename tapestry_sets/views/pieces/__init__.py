"""The normal form that every view is brought to: pieces, their maps, and the cells that they read."""
