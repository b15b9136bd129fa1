"""What is to be seen of a model without a prompt: its printout, its support, and whether it keeps its promises."""
