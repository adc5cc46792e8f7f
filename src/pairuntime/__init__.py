"""What runs beside the user's program: standard library only, Python >= 3.6, travels as one zipapp.

Nothing of ours may be imported here, and nothing here may depend on where it was installed from.
"""
