"""Tables of trained runs: `contents` puts the published cells beside our `rows`, `layout` writes both out."""
