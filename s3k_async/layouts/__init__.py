"""What only one layout of the table needs: a package for each."""
