"""What explains asyncio to hotloop, and hotloop to asyncio: names and structures of asyncio's that are not public."""
