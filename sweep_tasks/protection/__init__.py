"""Protected timestamps: what is visible at a timestamp, in some tables or rows, stays until it is released."""
