"""A module per dashboard, each with ``build()``; `board.py` has the common parts."""
