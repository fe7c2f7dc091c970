"""The ports of a backend, for items and for blobs, and what works over any of them."""
