"""hotloop in plain Python: the readable twin of hotloop._c, and what runs where no compiled extension is installed."""
