"""C4 and Dolma: web text from the hub or from local files in its layout."""
