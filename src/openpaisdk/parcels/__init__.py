"""How files travel: hashes over their content, and many small ones as one stream of records.

Pure, and shared by both ends: what one side packs the other unpacks.
"""
