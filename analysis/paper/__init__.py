"""What the paper prints, assumes and contradicts, and what follows from its digits."""
