"""The HTTPS server: requests, connections, and how clients share them."""
