"""What is swept, compacted and exported, and when: one file each."""
