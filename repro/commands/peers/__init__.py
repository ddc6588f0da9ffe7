"""What `make bench-peers` times: one training step each of this suite, PyTorch and NanoDO, a process a contestant."""
