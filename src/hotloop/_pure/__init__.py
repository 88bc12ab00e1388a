"""The pure implementation: the readable counterpart of hotloop._c, which runs if no compiled extension is installed."""
