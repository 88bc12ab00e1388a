"""The compiled implementation, built from ext/hotloop/_c; empty where no extension was built (see hotloop._impl)."""
