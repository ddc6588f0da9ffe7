"""What a link costs: the compute-utilisation simulator, bytes, hours and memory."""
