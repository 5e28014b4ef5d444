"""``python -m reproduction.page``: write docs/reproduction.md from the committed results."""

from __future__ import annotations

from pathlib import Path

import typer


def main(results: Path = Path("results"), output: Path = Path("docs/reproduction.md")) -> None:
    """Write the reproduction page from the results."""
    from reproduction.page.write import write_page

    write_page(output, results)
    print(f"written to {output}")


if __name__ == "__main__":
    typer.run(main)
