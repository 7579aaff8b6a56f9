"""What is measured about the mechanisms themselves: all side by side, and the whole job."""
