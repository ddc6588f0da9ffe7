"""Many runs: their folders, who works at them, worker processes."""
