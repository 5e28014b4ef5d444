"""The report's drawings: each takes numbers and gives SVG that the page's CSS colours."""
