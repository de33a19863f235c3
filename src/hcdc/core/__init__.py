"""What every room may use: errors, seeds, files, ranks, records, recipes, sparse matrices, progress."""
