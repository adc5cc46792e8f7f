"""Web portal: serves the files that the package build made from `portal/`. May import `context`."""
