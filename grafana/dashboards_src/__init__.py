"""One module per dashboard; each has ``build()``. `board.py` holds what all of them share."""
