"""The database servers of the rows that measure clients: each row starts one of its own and ends it."""
