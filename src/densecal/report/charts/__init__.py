"""The report's charts: each function takes numbers and returns SVG, coloured by the page's CSS."""
