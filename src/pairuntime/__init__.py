"""Runtime that supervises the user's program: standard library only, Python >= 3.6, deployed as one zipapp.

It imports neither openpaisdk nor paicluster, and nothing in it depends on where it is installed.
"""
