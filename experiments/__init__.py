"""The specs: what each table and figure of a paper trains or simulates, as data."""
