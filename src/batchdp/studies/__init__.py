"""What is measured about the mechanisms themselves: all side by side, the whole job, the paper again."""
