"""Controller: the reconcile loop. Compares desired with observed state, writes its intent, then acts.

It can be stopped and restarted at any point: all of its state is in the database or in the attempt folders.
"""
