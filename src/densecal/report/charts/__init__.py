"""The report's charts: each takes numbers and returns SVG that the page's CSS colours."""
