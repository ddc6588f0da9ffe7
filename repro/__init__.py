"""The library: what is run, how it trains, what it costs, and the commands."""
