"""Everything that relies on asyncio's private names and data structures, for both implementations."""
