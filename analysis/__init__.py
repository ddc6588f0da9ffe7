"""What the results tell: published numbers, tables, figures, statements and pages."""
