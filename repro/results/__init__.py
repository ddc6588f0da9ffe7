"""Results read, collected, estimated from and exported."""
