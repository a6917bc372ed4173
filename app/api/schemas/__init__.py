"""What OpenAPI shows: the shapes of requests and answers."""
