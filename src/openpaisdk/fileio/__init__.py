"""How files travel: hashes over their content, many small ones as one stream, large ones range by range.

Shared by both ends: what one side packs the other unpacks. What either removes, it removes whole.
"""
