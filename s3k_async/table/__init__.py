"""The stored form of the tree: item keys, codec, reads of items as they are stored."""
