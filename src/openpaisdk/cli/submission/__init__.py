"""Commands that submit jobs, or check them before."""
