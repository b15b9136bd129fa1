"""What is known of one model: opening it, what it is called with, what a pass of it comes by, where its values are."""
