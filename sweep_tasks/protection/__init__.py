"""Protected timestamps: versions that are visible at a timestamp, in some tables or rows, are kept until released."""
