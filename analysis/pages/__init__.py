"""What is shown for a name, and the page of everything."""
