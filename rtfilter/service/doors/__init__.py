"""The doors of the server: HTTP and WebSocket in `http`, TCP in `tcp`. They are thin over the pipeline and
over conversations, which check the rights of users.
"""
