"""Documentation, and the programs that draw its generated parts."""
