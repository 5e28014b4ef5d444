"""What makes the site: tutorials run, pages written from metadata and results, formulas drawn."""
