"""Earlier name of `openpaisdk.jobs.command_recipe`: jobs that programs have pickled name it."""

from openpaisdk.jobs.command_recipe import CommandRecipe, merge_changes

__all__ = ["CommandRecipe", "merge_changes"]
