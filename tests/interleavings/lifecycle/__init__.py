"""A model of a table's life: created, written, protected, emptied and dropped, in every order of steps."""
