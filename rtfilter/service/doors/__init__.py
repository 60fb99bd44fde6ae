"""The doors of the server: HTTP and WebSocket in `http`, TCP in `tcp`. They are thin over the pipeline and
over conversations; what a user may do is checked there.
"""
