"""The journal: a record of every act that can remove data or weaken a safeguard."""
