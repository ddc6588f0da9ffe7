"""Laws fitted to losses: power laws, the forms beyond them, and how much they say."""
